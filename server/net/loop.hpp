#pragma once

// Loop: one io_context and its thread, and what the connections on it share: an inbox for other threads, one
// alarm for all deadlines.
//
// Thread safety: as noted at each call. A Loop outlives its server for as long as a reply is held; it is
// stopped then and drops what it is given.

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/intrusive/list.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/net/alarm.hpp"
#include "server/net/net.hpp"
#include "server/net/poller.hpp"
#include "server/net/session.hpp"

namespace fenceguard::net {

class Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Any thread but the loop's own. start() throws std::system_error; after stop() nothing runs any more.
  void start();
  void stop();

  // Any thread. Runs action on the loop soon, or drops it if the loop is stopped.
  void post(std::function<void()> action);
  [[nodiscard]] bool is_current() const noexcept;
  [[nodiscard]] asio::io_context& context() noexcept { return context_; }
  std::atomic<std::int64_t> in_flight{0};

  // The loop's own thread, all of the rest.
  void add(Session& session);
  void remove(Session& session);
  // For connections without a coroutine.
  [[nodiscard]] Poller& poller() noexcept { return poller_; }
  // The session waits for a whole request, until it unlinks itself.
  void add_waiting(Session& session);
  // Ends the connection of service that has waited longest for a whole request; with what came meanwhile,
  // if that is one. False: none waits.
  bool end_longest_waiting(const Service& service);
  // Has expire() called at the sessions soon after deadline.
  void arm(SteadyTime deadline) { alarm_.arm(deadline); }
  // Lets what else is ready go first. What is sent after it goes out close together, and the receiver wakes
  // up once for many messages and not for each.
  [[nodiscard]] auto yield() { return asio::post(context_, asio::deferred); }
  [[nodiscard]] bool is_draining() const noexcept { return is_draining_; }
  // Idle connections end at once, others with their present request.
  void begin_drain();
  // All end at once.
  void cut();
  // All look at what they are lent.
  void look_at_loans();

 private:
  void run();
  void run_inbox();
  [[nodiscard]] SteadyTime sweep(SteadyTime now);
  [[nodiscard]] std::vector<std::shared_ptr<Session>> sessions() const;

  std::mutex mutex_;  // guards inbox_ and is_stopped_
  std::vector<std::function<void()>> inbox_;
  bool is_stopped_ = false;

  std::vector<std::function<void()>> running_;  // what run_inbox() took, kept for its memory
  std::vector<Session*> sessions_;
  boost::intrusive::list<Session, boost::intrusive::base_hook<WaitHook>,
                         boost::intrusive::constant_time_size<false>>
      waiting_;  // longest first
  bool is_draining_ = false;
  std::thread thread_;
  asio::io_context context_{1};
  Alarm alarm_;
  Poller poller_{context_};
};

// Calls action, which belongs to another layer, and swallows what it throws: a loop goes on for its other
// connections.
void call_safely(const std::function<void()>& action) noexcept;

}  // namespace fenceguard::net
