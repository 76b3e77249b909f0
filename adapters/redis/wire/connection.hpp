#pragma once

// Connection: one connection to one Redis server, over hiredis. It is opened, authenticated and put on its
// database when it is made. After a fault it is broken for good; make another.
//
// The endings of a call: a Reply, which may be an error that the server answered; Unavailable, when nothing
// reached the server; OutcomeUnknown, when the command was sent, even in part, and its answer not seen.
//
// Not thread-safe.

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/redis/address.hpp"
#include "adapters/redis/wire/reply.hpp"
#include "guard/error.hpp"

struct redisContext;

namespace fenceguard::redis {

using Arguments = std::span<const std::string_view>;

// The server answers, and wants a password of its default user, which the address does not have.
class PasswordRequired : public Unavailable {
 public:
  using Unavailable::Unavailable;
};

// Appends one command to text, as it is sent.
void encode(Arguments arguments, std::string& text);

class Connection {
 public:
  // What the server said of itself when it was greeted.
  struct Server {
    std::string version;      // '7.0.15'
    bool is_cluster = false;  // one node of a Redis Cluster
    bool is_replica = false;
    // The connection's number and address, as the server has them; empty: it did not say.
    std::string id, address;
    std::string run_id;  // of this process, and of no other, at the same address or elsewhere; or empty
  };
  // When a call was sent and its answer not seen.
  using LostAt = std::optional<std::chrono::steady_clock::time_point>;

  // Connects to the address's first endpoint. Throws Unavailable, PasswordRequired among others, with a
  // sentence that says what to do and never holds the password.
  explicit Connection(const Address& address);
  ~Connection();
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;

  [[nodiscard]] const Server& server() const noexcept { return server_; }
  [[nodiscard]] int socket() const noexcept;
  // Nothing where no call ended in OutcomeUnknown.
  [[nodiscard]] LostAt lost_at() const noexcept { return lost_at_; }

  // One command, its arguments as they are.
  [[nodiscard]] Reply call(Arguments arguments);

  // Several at once, in one round trip, answered in their order. A fault is that of all from the first
  // without an answer on: the replies before it are lost with it.
  [[nodiscard]] std::vector<Reply> call_all(std::span<const std::vector<std::string_view>> commands);

  // The same in parts: queue() any number, send() once, receive() as often.
  void queue(Arguments arguments);
  void queue_encoded(std::string_view command);
  void send();
  [[nodiscard]] Reply receive();

  // As receive(), but whatever the answer takes beyond limit is OutcomeUnknown.
  void set_timeout(std::chrono::milliseconds limit);

  // False if a call failed, or the server hung up while nothing was asked. What happened within 0.1 ms of the
  // last answer is not looked for: then the next call is OutcomeUnknown.
  [[nodiscard]] bool is_usable() const noexcept;

 private:
  struct Close {
    void operator()(redisContext* context) const noexcept;
  };

  void greet(const Address& address);
  [[noreturn]] void fail(bool was_sent);

  std::unique_ptr<redisContext, Close> context_;
  std::string shown_;
  Server server_;
  std::size_t outstanding_ = 0;  // commands queued or sent and not answered
  std::string encoded_;          // kept for its memory alone
  std::chrono::steady_clock::time_point answered_at_{};
  LostAt lost_at_;
};

}  // namespace fenceguard::redis
