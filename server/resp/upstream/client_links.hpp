#pragma once

// ClientLinks: the connections to Redis as one client's relay uses them (its RedisPort): the shared ones
// (SharedRequests), and up to two of the client's own. What comes on them is told to the relay.
//
// Thread safety: the loop's thread only.

#include <functional>
#include <memory>
#include <vector>

#include "server/net/session.hpp"
#include "server/resp/relay/relay.hpp"
#include "server/resp/unsettled_claims.hpp"
#include "server/resp/upstream/shared_requests.hpp"

namespace fenceguard::resp {

class ClientLinks final : public RedisPort, public LinkUser {
 public:
  // What happens to the session for it. changed: the relay has been told something. failed: there was no
  // memory in the middle, so that what the relay awaits is not certain any more.
  struct Events {
    std::function<void()> changed;
    std::function<void()> failed;
  };
  // session has this as a part, and is kept for as long as anything that it sent may take effect.
  ClientLinks(net::Session& session, Relay& relay, std::shared_ptr<Upstreams> upstreams,
              UnsettledClaims& unsettled, std::int64_t number, Events events);
  ~ClientLinks() override;

  // The client has gone: the claims under which writes are under way, or are still to be sent, are noted, so
  // that what it writes on another connection waits for them. unread: see Relay::claims_under_way().
  void note_unsettled(std::string_view unread = {}) noexcept;
  // The relay is told nothing more. A write that is under way on an own connection may take effect all the
  // same, and is awaited.
  void close_all() noexcept;
  // When what is being replied to was sent.
  [[nodiscard]] net::SteadyTime sent_at() const noexcept { return sent_at_; }

  // RedisPort
  void prepare(Channel channel, int slot, bool stays) override;
  void send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool waits) override;
  void send_read(int slot, std::string_view bytes) override { shared_.send_read(self(), slot, bytes); }
  void send(Channel channel, int slot, const ScriptCall& call, bool with_text) override;
  [[nodiscard]] int server_of(int slot) override { return shared_.server_of(slot); }
  void redirect(int /*slot*/, std::string_view error) override { shared_.redirect(error); }
  [[nodiscard]] bool is_cluster() const override { return upstreams_->is_cluster(); }
  void close(Channel channel) override;
  void bind(const Identity& identity, int database) override;
  void learn_command(std::string_view name) override;
  [[nodiscard]] bool is_unsettled(int database, const Claim& claim) const override {
    return unsettled_claims_.contains(database, claim, unsettled_);
  }
  void sleep(int ms) override;
  [[nodiscard]] std::string server_version() const override { return upstreams_->version(); }

  // LinkUser
  void link_replied(Channel channel, std::string_view reply, net::SteadyTime sent_at) override;
  void link_lost(Channel channel, bool was_sent, std::string_view why) override;
  [[nodiscard]] bool awaits_judged_write(Channel channel) const override {
    return relay_.awaits_judged_write(channel);
  }
  void link_settling(Channel channel) noexcept override {
    if (channel == Channel::shared) shared_.note_settling();
  }

 private:
  [[nodiscard]] LinkUserPtr self() { return {session_.shared_from_this(), static_cast<LinkUser*>(this)}; }
  [[nodiscard]] std::shared_ptr<Link>& owned(Channel channel) noexcept {
    return channel == Channel::own ? own_ : spare_;
  }
  // Tells the relay, unless all is closed.
  template <class Action>
  void tell(const Action& action) noexcept;
  // The same later, as what Upstreams and timers call.
  template <class Action>
  [[nodiscard]] auto later(Action action);

  net::Session& session_;
  Relay& relay_;
  const std::shared_ptr<Upstreams> upstreams_;
  UnsettledClaims& unsettled_claims_;
  const Events events_;
  SharedRequests shared_;
  Upstreams::Place wanted_;  // as the relay wants it, where there may be no connection
  std::shared_ptr<Link> own_, spare_;
  std::vector<UnsettledClaims::Key> unsettled_;
  net::SteadyTime sent_at_{};
  bool is_closed_ = false;
};

}  // namespace fenceguard::resp
