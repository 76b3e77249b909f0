#pragma once

// Session: one connection that was accepted, in whatever protocol, as the loop and the listener know it; and
// Service: what a listener serves, which makes one for each. A protocol implements both.
//
// Thread safety: a session on its loop's thread only, a service's calls on any.

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "server/net/net.hpp"

namespace fenceguard::net {

class Loop;
class Service;

// How many connections and listeners a server has, so that drain() can wait until there are none.
class ConnectionCounter {
 public:
  void enter();
  void leave();
  // True if none is left; false at the deadline.
  bool wait_until_empty(SteadyTime deadline);

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::size_t present_ = 0;
};

// A session's place among those that wait for a request.
using WaitHook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

class Session : public std::enable_shared_from_this<Session>, public WaitHook {
 public:
  virtual ~Session() = default;

  [[nodiscard]] virtual Loop& loop() noexcept = 0;
  [[nodiscard]] virtual const Service& service() const noexcept = 0;

  // Serves the connection to its end, and keeps itself alive for so long. Does not throw: what fails ends the
  // connection.
  virtual void start() = 0;
  // Closes it, in place of start().
  virtual void decline() = 0;

  // When its present wait is over; SteadyTime::max(): never.
  [[nodiscard]] virtual SteadyTime deadline() const noexcept = 0;
  // Ends the present wait if the deadline has passed.
  virtual void expire(SteadyTime now) = 0;
  // Ends at once if it is idle, and else with what was begun.
  virtual void begin_drain() = 0;
  // Ends now.
  virtual void cut() = 0;
  // What its service lends it may have been taken back: it looks, and ends with what was begun if so.
  virtual void look_at_loan() {}
  // It waits for a request, and its place is wanted by another connection.
  virtual void end_waiting() = 0;

  static constexpr std::size_t nowhere = ~std::size_t{0};
  std::size_t place_in_loop = nowhere;  // the loop's
};

class Service {
 public:
  // connection_counter outlives the service; most: connections at a time.
  Service(ConnectionCounter& connection_counter, std::size_t most)
      : counter{connection_counter}, connections_max{static_cast<std::int64_t>(most)} {}
  virtual ~Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // For a connection that was counted in connections and counter; the session's end takes it off both.
  [[nodiscard]] virtual std::shared_ptr<Session> make_session(Loop& loop, Socket socket) = 0;

  ConnectionCounter& counter;
  const std::int64_t connections_max;
  std::atomic<std::int64_t> connections{0};
};

// A service whose sessions share what an operator set: Shared has the 'context' of the service, with its
// limits, and OneSession is made from the loop, the socket, that and the service.
template <class OneSession, class Shared>
class SharedService final : public Service,
                            public std::enable_shared_from_this<SharedService<OneSession, Shared>> {
 public:
  SharedService(std::shared_ptr<Shared> shared, ConnectionCounter& connection_counter)
      : Service{connection_counter, shared->context.limits.connections_max}, shared_{std::move(shared)} {}

  [[nodiscard]] std::shared_ptr<Session> make_session(Loop& loop, Socket socket) override {
    return std::make_shared<OneSession>(loop, std::move(socket), shared_, this->shared_from_this());
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace fenceguard::net
