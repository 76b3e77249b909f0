#pragma once

// Server: event loops, one thread each, and the addresses on which services are served. It moves no bytes
// itself: a service's sessions do.
//
// Thread safety: all public calls may be made from any thread.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/net/address.hpp"
#include "server/net/session.hpp"

namespace fenceguard::net {

class Listener;

class Server {
 public:
  // threads event loops, started by this call. Throws Unavailable if a thread cannot be made.
  explicit Server(unsigned threads);
  // Cuts what is still open, as drain(0) does.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds address and serves service on it, which was made with counter(). Port 0 picks a free one. Returns
  // the address as bound. Throws Unavailable with a sentence (in use, not permitted, ...). A Unix socket's
  // file left behind by a dead server is replaced; one that answers is 'in use'; the file is removed at the
  // end.
  std::string listen(const Address& address, std::shared_ptr<Service> service);

  // Stops accepting, lets sessions end what they have begun, ends idle ones at once, and after at most
  // timeout cuts the rest. Blocks until then. True if nothing had to be cut. REQUIRES: not called by a
  // session.
  bool drain(std::chrono::milliseconds timeout);

  // Whether every event loop comes round to what it is given within limit: none hangs. Blocks until then.
  // REQUIRES: not called by a session.
  [[nodiscard]] bool answers(std::chrono::milliseconds limit);

  // Has every session look at what it is lent, soon. Does not block.
  void look_at_loans();

  // What the sessions have counted in Loop::in_flight.
  [[nodiscard]] std::int64_t in_flight() const noexcept;
  // Open connections.
  [[nodiscard]] std::int64_t connections() const;

  // Its connections and listeners, for services that are made for it.
  [[nodiscard]] ConnectionCounter& counter() noexcept { return counter_; }
  // They live as long as the server, and are stopped then.
  [[nodiscard]] std::vector<Loop*> loops() const;

 private:
  void stop_accepting();

  ConnectionCounter counter_;
  std::vector<std::shared_ptr<Loop>> loops_;
  mutable std::mutex mutex_;  // guards the rest
  std::vector<std::shared_ptr<Service>> services_;
  std::vector<std::weak_ptr<Listener>> listeners_;
  bool is_draining_ = false;
};

}  // namespace fenceguard::net
