#pragma once

// Link: one connection to a Redis server, as one user and in one database, on which requests of many clients
// follow each other, or those of one client alone. What is sent in one turn of the loop leaves together. A
// reply that does not come in time ends it, and everything that was sent on it and not answered is lost.
//
// What was lost may still be on its way. A client that awaits a write under a claim is told only when that
// can take effect no more, because it may write again at once: see settle.
//
// Thread safety: the loop's thread only.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "adapters/redis/address.hpp"
#include "server/net/address.hpp"
#include "server/net/loop.hpp"
#include "server/net/read/read_buffer.hpp"
#include "server/net/transport.hpp"
#include "server/resp/replies/port.hpp"
#include "server/resp/upstream/greeting.hpp"

namespace fenceguard::resp {

class Link;

// Who sent something on a link.
class LinkUser {
 public:
  virtual ~LinkUser() = default;
  // sent_at: of the request, about.
  virtual void link_replied(Channel channel, std::string_view reply, net::SteadyTime sent_at) = 0;
  // A reply will not come. was_sent: the server may have the request.
  virtual void link_lost(Channel channel, bool was_sent, std::string_view why) = 0;
  // A write under a claim is among what is not answered.
  [[nodiscard]] virtual bool awaits_judged_write(Channel /*channel*/) const { return false; }
  // The link is lost, and link_lost() comes later, for all that is not answered.
  virtual void link_settling(Channel /*channel*/) noexcept {}

 private:
  friend class Link;
  const Link* settles_on_ = nullptr;  // while a link looks who does
};
using LinkUserPtr = std::shared_ptr<LinkUser>;

class Link : public std::enable_shared_from_this<Link> {
 public:
  // address: with this endpoint alone. owner: whose link it is alone; null: it is shared.
  Link(net::Loop& loop, redis::Address address, Channel channel, LinkUserPtr owner);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Connects and greets; greeted is told once, unless it is closed before. Throws where there is no memory:
  // it is closed then. So does decline().
  void open(std::function<void(const Greeting&)> greeted);
  // In place of open(): there is no connection, which greeted and its users are told soon.
  void decline(std::string why, std::function<void(const Greeting&)> greeted);
  [[nodiscard]] bool is_open() const noexcept { return state_ != State::closed; }
  [[nodiscard]] bool is_ready() const noexcept { return state_ == State::ready; }
  [[nodiscard]] const redis::Endpoint& server() const noexcept { return address_.endpoints.front(); }
  [[nodiscard]] const redis::Address& address() const noexcept { return address_; }
  [[nodiscard]] const Greeting& greeting() const noexcept { return greeting_; }

  // Before it is ready, it is kept until then. waits: the reply may take any time.
  void send(const LinkUserPtr& user, std::string_view bytes, std::size_t replies, bool waits);
  // with_text: whether or not the server was sent the script on this link before.
  void send(const LinkUserPtr& user, const ScriptCall& call, bool is_asked, bool with_text);
  // Without a word to the users of what was sent and not answered.
  void close() noexcept;
  // Ends it; the users of what was sent and not answered are told why, at once or when it has settled. Takes
  // no memory, or they would wait for ever where there is none.
  void fail(std::string_view why) noexcept;
  // In settle: it has settled by then, if not before. Where there is no memory for the timer the process
  // ends.
  void settle_until(net::SteadyTime deadline) noexcept;
  [[nodiscard]] bool is_settling() const noexcept { return settling_ != nullptr; }
  // Why it takes the settle time; the last counts.
  void explain(std::string why) { settles_why_ = std::move(why); }
  // It has settled: what was lost takes effect no more.
  void tell_settled() noexcept;
  // Likewise, and it does not settle.
  void forget() noexcept;

  // Since when it is ready and nothing is under way on it.
  [[nodiscard]] std::optional<net::SteadyTime> idle_since() const noexcept;

  [[nodiscard]] net::SteadyTime deadline() const noexcept { return deadline_; }
  // Ends it if the deadline has passed.
  void expire(net::SteadyTime now);
  // Called with a deadline that was set.
  std::function<void(net::SteadyTime)> arm{};
  // Called once, where it is lost and users await writes under claims: calls settle_until(), and may have
  // tell_settled() called before. May throw then.
  std::function<void()> settle{};
  bool takes_replica = false;  // to end a connection there

 private:
  enum class State { connecting, ready, closed };
  struct Sent {
    LinkUserPtr user;
    std::size_t replies;
    std::uint64_t begin;  // among all bytes that were queued
    net::SteadyTime at;
    bool waits;
    bool settles = false;  // is told when the link has settled
  };

  [[nodiscard]] net::Task<void> run();
  [[nodiscard]] net::Task<std::string> connect();
  [[nodiscard]] net::Task<net::Transport::Error> connect_to(const net::Endpoint& endpoint);
  [[nodiscard]] net::Task<void> receive_all();
  void end_greeting(std::string error);
  // Which of sent_ is told when it has settled. False: nothing is.
  [[nodiscard]] bool mark_settling() noexcept;
  // Those of sent_ that are not told when it has settled, and these.
  void tell_lost(bool settled) noexcept;
  void begin_settling() noexcept;
  void deliver(std::string_view reply);
  template <class Action>
  void fail_where_thrown(const Action& action);
  void send_script(const LinkUserPtr& user, const ScriptCall& call, bool is_asked, bool with_text);
  void queue(const LinkUserPtr& user, std::size_t replies, bool waits);
  void schedule_flush();
  void flush();
  [[nodiscard]] net::Task<void> send_rest();
  void set_deadline(net::SteadyTime deadline);
  // For what is awaited from here on.
  void renew_deadline();

  // More members than a class should have: what was sent, what of it left, and who is told when it is lost
  // are one state. Apart, each part would have to ask the others whether the link is closed, at every step.
  net::Loop& loop_;
  const redis::Address address_;
  const Channel channel_;
  const std::weak_ptr<LinkUser> owner_;
  State state_ = State::connecting;
  Greeting greeting_;
  std::function<void(const Greeting&)> greeted_;
  net::Transport transport_;
  net::ReadBuffer buffer_;
  ReplyReader reader_;
  std::deque<Sent> sent_;
  std::string out_, sending_;
  std::uint64_t queued_ = 0, written_ = 0;
  bool is_flush_scheduled_ = false, is_sending_ = false;
  bool is_demoted_ = false;  // the server has become a replica
  std::string lost_why_, settles_why_;
  std::shared_ptr<Link> settling_;  // itself, until it has settled
  net::SteadyTime progress_at_{};
  net::SteadyTime deadline_ = net::SteadyTime::max();
  std::unordered_set<const redis::Script*> scripts_;  // that were sent with their text
};

}  // namespace fenceguard::resp
