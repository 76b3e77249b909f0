#pragma once

// Session: one client's connection, in RESP2: reads requests for its relay, and is the relay's port: sends
// what the relay decides on the connections of its loop, and what comes of it to the client. Replies that
// come together leave together. A client that does not read is not read from, and one that has too much
// waiting for it is cut.
//
// Thread safety: the loop's thread only.

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "server/leases/lease_holder.hpp"
#include "server/net/connection.hpp"
#include "server/net/session.hpp"
#include "server/resp/relay/relay.hpp"
#include "server/resp/shared.hpp"
#include "server/resp/upstream/upstreams.hpp"
#include "server/resp/wire/request_reader.hpp"

namespace fenceguard::resp {

class Session final : public net::Session,
                      private ClientPort,
                      private RedisPort,
                      private RelayObserver,
                      private LinkUser {
 public:
  Session(net::Loop& loop, net::Socket socket, std::shared_ptr<Shared> shared,
          std::shared_ptr<net::Service> service);
  ~Session() override;

  [[nodiscard]] net::Loop& loop() noexcept override { return connection_.loop(); }
  [[nodiscard]] const net::Service& service() const noexcept override { return *service_; }
  void start() override;
  void decline() override;
  [[nodiscard]] net::SteadyTime deadline() const noexcept override { return connection_.deadline(); }
  void expire(net::SteadyTime now) override;
  void begin_drain() override;
  void look_at_loan() override;
  void cut() override;
  // Where there are too many connections the newest is refused, as Redis does.
  void end_waiting() override {}

 private:
  // ClientPort and RedisPort
  void answer(std::string_view bytes) override;
  void end() override;
  void prepare(Channel channel, int slot, bool stays) override;
  void send(Channel channel, int slot, std::string_view bytes, std::size_t replies, bool waits) override;
  void send_read(int slot, std::string_view bytes) override;
  void send(Channel channel, int slot, const ScriptCall& call, bool with_text) override;
  [[nodiscard]] int server_of(int slot) override {
    return upstreams_->server_of(slot < 0 ? last_slot_ : slot);
  }
  void redirect(int slot, std::string_view error) override;
  [[nodiscard]] bool is_cluster() const override { return upstreams_->is_cluster(); }
  void close(Channel channel) override;
  void bind(const Identity& identity, int database) override;
  void learn_command(std::string_view name) override;
  [[nodiscard]] bool is_unsettled(int database, const Claim& claim) const override {
    return shared_->unsettled.contains(database, claim, unsettled_);
  }
  void sleep(int ms) override;
  [[nodiscard]] std::string server_version() const override { return upstreams_->version(); }
  [[nodiscard]] std::int64_t connection_number() const override { return number_; }

  // RelayObserver
  void ruled(const char* operation, const Claim& claim, Verdict verdict, std::int64_t highest,
             std::size_t count) override;
  void raised(const Claim& claim) override;
  void failed(const char* operation, const Claim& claim, const Fault& fault, std::size_t count) override;
  void missing(std::string_view resource) override;
  void not_signed(const char* operation, const Claim& claim) override;

  // LinkUser
  void link_replied(Channel channel, std::string_view reply, net::SteadyTime sent_at) override;
  void link_lost(Channel channel, bool was_sent, std::string_view why) override;
  [[nodiscard]] bool awaits_judged_write(Channel channel) const override {
    return relay_.awaits_judged_write(channel);
  }
  void link_settling(Channel channel) noexcept override {
    is_settling_ = is_settling_ || channel == Channel::shared;
  }

  [[nodiscard]] net::Task<void> run();
  [[nodiscard]] net::Task<bool> begin();
  // False, and the client is told: what is to be held for it is not held.
  [[nodiscard]] net::Task<bool> borrow_claims();
  [[nodiscard]] net::Task<bool> read();
  [[nodiscard]] net::Task<bool> wait_for_room();
  [[nodiscard]] bool is_full() noexcept;
  void finish();
  // Takes what requests there are, as far as the relay takes them now.
  void pump();
  void take_requests();
  [[nodiscard]] bool takes_requests() const noexcept;
  // Something has come about: looks again, once for all that comes in this turn.
  void schedule();
  void look_again();
  // Out of memory in the middle: what the relay awaits is not certain any more.
  template <class Action>
  void cut_where_thrown(const Action& action) noexcept {
    try {
      action();
    } catch (...) {
      cut();
    }
  }
  void flush();
  [[nodiscard]] net::Task<void> send_rest();
  void count_in_flight();
  [[nodiscard]] std::shared_ptr<Link>& owned(Channel channel) noexcept;
  [[nodiscard]] std::shared_ptr<Link> link_for(Channel channel, int slot);
  [[nodiscard]] bool has_own_lane() const noexcept { return bound_place_.lane >= Upstreams::lanes; }
  // Whether so much goes on the shared connection now; if not, it is held until what was sent is answered.
  [[nodiscard]] bool may_share(std::size_t bytes) noexcept;
  void leave_own_lane();
  void note_unsettled() noexcept;
  void close_links();
  [[nodiscard]] bool ends_awaited() noexcept;
  void send_held();
  // True, and it is sent elsewhere: a read for which there is no connection.
  [[nodiscard]] bool reads_again();
  template <class Request>
  void send_on(Channel channel, int slot, const Request& send_to);
  [[nodiscard]] LinkUserPtr self() { return {shared_from_this(), static_cast<LinkUser*>(this)}; }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<net::Service> service_;
  const std::int64_t number_;
  const std::shared_ptr<Upstreams> upstreams_;
  net::Connection connection_;
  std::shared_ptr<HeldClaims> held_claims_;  // what it began under; null: what the client brings
  Relay relay_;
  RequestReader reader_;
  Upstreams::Place place_, bound_place_;
  std::shared_ptr<Link> own_, spare_;
  std::optional<redis::Endpoint> asked_;  // where an ASK sent what is sent next
  int last_slot_ = -1;
  std::size_t skipped_ = 0;  // replies to come that are of our own ASKING
  std::size_t awaited_ = 0;  // replies to come on the shared connection
  struct HeldRequest {
    std::size_t bytes;
    std::function<void()> send;
  };
  std::list<HeldRequest> held_;         // what is sent on it later
  std::deque<std::string> to_read_;     // was sent for a connection for reads that is not there yet
  std::list<HeldRequest> read_again_;   // because that was not made
  net::SteadyTime reads_apart_from_{};  // not before
  std::string out_, sending_;
  std::string peer_;
  net::SteadyTime sent_at_{};  // of what is being replied to
  std::size_t counted_ = 0;    // in the loop's in_flight
  bool is_sending_ = false, is_scheduled_ = false, is_pumping_ = false;
  bool is_sending_held_ = false;
  bool is_reading_ = false;   // what is awaited is on the connection for reads
  bool is_settling_ = false;  // what is awaited on the shared connection is lost, and not told yet
  std::vector<UnsettledClaims::Key> unsettled_;
  bool is_ending_ = false, is_draining_ = false, is_over_ = false;
  bool fills_up_ = false;  // the last read took all the room there was
};

}  // namespace fenceguard::resp
