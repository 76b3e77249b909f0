#pragma once

// UpstreamPool: the connections of one loop to the upstream: makes them, keeps what is idle for the next
// request, and wakes what is late.
//
// Thread safety: the loop's thread only, but for cut_at() and the destructor.

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "adapters/http/upstream_connection.hpp"
#include "adapters/http/upstream_options.hpp"
#include "guard/http/alarm.hpp"
#include "guard/http/loop.hpp"
#include "guard/http/net.hpp"

namespace fenceguard::proxy {

class UpstreamPool {
 public:
  // A second answer to what is over, if there is one, has come by then.
  static constexpr std::chrono::milliseconds rest_min{1};

  // options outlive the pool.
  UpstreamPool(const UpstreamOptions& options, std::shared_ptr<http::Loop> loop);
  // REQUIRES: the loop has stopped, and nothing waits on a connection.
  ~UpstreamPool();
  UpstreamPool(const UpstreamPool&) = delete;
  UpstreamPool& operator=(const UpstreamPool&) = delete;

  // A connection that is idle and quiet, the most recently used of those that have rested for rest_min, so
  // that those in excess end in time; null if there is none. A second answer that comes later would be taken
  // for that to the next request.
  [[nodiscard]] std::unique_ptr<UpstreamConnection> take();
  // A new one; null if none could be made until deadline: nothing was sent then.
  [[nodiscard]] http::Task<std::unique_ptr<UpstreamConnection>> connect(http::SteadyTime deadline);
  // Keeps a connection whose answer was whole for the next request. idle_max: as the upstream said, if it
  // did.
  void keep(std::unique_ptr<UpstreamConnection> connection, std::optional<std::chrono::seconds> idle_max);

  [[nodiscard]] const UpstreamOptions& options() const noexcept { return options_; }
  [[nodiscard]] http::Loop& loop() noexcept { return *loop_; }
  [[nodiscard]] std::size_t idle() const noexcept { return idle_.size(); }

  // No deadline is later than this.
  [[nodiscard]] http::SteadyTime last_moment() const noexcept { return cut_at_; }

  // Any thread: no wait for the upstream lasts longer than until then.
  void cut_at(http::SteadyTime moment);

  // From the connections.
  void add(UpstreamConnection& connection);
  void remove(UpstreamConnection& connection) noexcept;
  void arm(http::SteadyTime deadline) { alarm_.arm(deadline); }

 private:
  // A socket with its options set, for endpoint; null if there is no descriptor.
  [[nodiscard]] std::unique_ptr<UpstreamConnection> open(const http::Endpoint& endpoint);
  [[nodiscard]] http::SteadyTime sweep(http::SteadyTime now);

  const UpstreamOptions& options_;
  const std::shared_ptr<http::Loop> loop_;  // its context outlives the sockets
  http::Alarm alarm_;
  http::SteadyTime cut_at_ = http::SteadyTime::max();
  std::vector<UpstreamConnection*> connections_;
  std::deque<std::unique_ptr<UpstreamConnection>> idle_;  // the most recently used one is the last
};

}  // namespace fenceguard::proxy
