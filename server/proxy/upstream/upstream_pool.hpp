#pragma once

// UpstreamPool: the connections of one loop to the upstream: makes them, keeps what is idle for the next
// request, and wakes what is late.
//
// Thread safety: the loop's thread only, but for cut_at() and the destructor.

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "guard/claim.hpp"
#include "server/net/alarm.hpp"
#include "server/net/loop.hpp"
#include "server/net/net.hpp"
#include "server/net/read/read_buffer.hpp"
#include "server/net/transport.hpp"
#include "server/proxy/upstream/upstream_options.hpp"

namespace fenceguard::proxy {

class UpstreamPool;

// One connection to the upstream, with what came on it and was not used yet, and its one deadline, which the
// pool keeps. A request has it alone.
class UpstreamConnection final : public net::Poller::Watcher {
 public:
  // Who uses the connection while it is out of Asio.
  class User {
   public:
    virtual ~User() = default;
    virtual void upstream_ready() noexcept = 0;
    // The deadline has passed: the connection was reset.
    virtual void upstream_late() noexcept = 0;
  };

  UpstreamConnection(UpstreamPool& pool, net::Transport transport);
  // In order where the upstream has taken all that was sent, else by a reset.
  ~UpstreamConnection() override;
  UpstreamConnection(const UpstreamConnection&) = delete;
  UpstreamConnection& operator=(const UpstreamConnection&) = delete;

  [[nodiscard]] net::Transport& transport() noexcept { return transport_; }
  [[nodiscard]] net::ReadBuffer& buffer() noexcept { return buffer_; }

  // Takes it out of Asio, if it is not yet: user is told of what comes until release(). False: it cannot be
  // used.
  [[nodiscard]] bool lend(User& user) noexcept;
  void release() noexcept { user_ = nullptr; }
  // Gives it back to Asio, if it was taken out. False: it is closed.
  [[nodiscard]] bool attach() noexcept { return transport_.attach(); }
  void ready(bool has_ended) noexcept override;

  // A request was answered on it before.
  [[nodiscard]] bool is_reused() const noexcept { return is_reused_; }

  // Something of what was sent has not arrived: an upstream that has answered has not seen all of it.
  [[nodiscard]] bool has_unsent() noexcept;

  // What one segment takes; 0 where that is not known.
  [[nodiscard]] std::size_t segment_bytes() const noexcept { return segment_bytes_; }

  // At the deadline the connection is reset, every wait on it ends with an error, and is_late() is true. The
  // transport is not used any more then.
  void set_deadline(net::SteadyTime deadline);
  void clear_deadline() noexcept { deadline_ = net::SteadyTime::max(); }
  [[nodiscard]] bool is_late() const noexcept { return is_late_; }

  // It carries a write under these claims, which outlive that, or no more.
  void set_writes(std::span<const Claim> claims) noexcept { writes_ = claims; }
  [[nodiscard]] std::span<const Claim> writes() const noexcept { return writes_; }

  // From the pool.
  [[nodiscard]] net::SteadyTime deadline() const noexcept { return deadline_; }
  void expire() noexcept;
  void begin_idle(net::SteadyTime now) noexcept {
    is_reused_ = true;
    idle_since_ = now;
    writes_ = {};
  }
  [[nodiscard]] net::SteadyTime idle_since() const noexcept { return idle_since_; }
  // Once it is connected.
  void look_at_segments() noexcept;
  std::size_t place_in_pool = 0;

 private:
  UpstreamPool& pool_;
  User* user_ = nullptr;
  net::Transport transport_;
  net::ReadBuffer buffer_;
  net::SteadyTime deadline_ = net::SteadyTime::max();
  net::SteadyTime idle_since_{};
  std::span<const Claim> writes_;
  std::size_t segment_bytes_ = 0;
  bool is_reused_ = false;
  bool is_late_ = false;
};

class UpstreamPool {
 public:
  // A second answer to what is over, if there is one, has come by then.
  static constexpr std::chrono::milliseconds rest_min{1};

  // options outlive the pool.
  UpstreamPool(const UpstreamOptions& options, std::shared_ptr<net::Loop> loop);
  // REQUIRES: the loop has stopped, and nothing waits on a connection.
  ~UpstreamPool();
  UpstreamPool(const UpstreamPool&) = delete;
  UpstreamPool& operator=(const UpstreamPool&) = delete;

  // A connection that is idle and quiet, the most recently used of those that have rested for rest_min, so
  // that those in excess end in time; null if there is none. A second answer that comes later would be taken
  // for that to the next request.
  [[nodiscard]] std::unique_ptr<UpstreamConnection> take();
  // A new one; null if none could be made until deadline: nothing was sent then.
  [[nodiscard]] net::Task<std::unique_ptr<UpstreamConnection>> connect(net::SteadyTime deadline);
  // Keeps a connection whose answer was whole for the next request. idle_max: as the upstream said, if it
  // did.
  void keep(std::unique_ptr<UpstreamConnection> connection, std::optional<std::chrono::seconds> idle_max);

  [[nodiscard]] const UpstreamOptions& options() const noexcept { return options_; }
  [[nodiscard]] net::Loop& loop() noexcept { return *loop_; }
  [[nodiscard]] std::size_t idle() const noexcept { return idle_.size(); }

  // No deadline is later than this.
  [[nodiscard]] net::SteadyTime last_moment() const noexcept { return cut_at_; }

  // Resets the connections on which a write on the resource, under this token or a lower one, is not
  // answered.
  void reset_writes(std::string_view resource, std::int64_t token_max) noexcept;

  // Any thread: no wait for the upstream lasts longer than until then.
  void cut_at(net::SteadyTime moment);

  // From the connections.
  void add(UpstreamConnection& connection);
  void remove(UpstreamConnection& connection) noexcept;
  void arm(net::SteadyTime deadline) { alarm_.arm(deadline); }

 private:
  // A socket with its options set, for endpoint; null if there is no descriptor.
  [[nodiscard]] std::unique_ptr<UpstreamConnection> open(const net::Endpoint& endpoint);
  [[nodiscard]] net::SteadyTime sweep(net::SteadyTime now);

  const UpstreamOptions& options_;
  const std::shared_ptr<net::Loop> loop_;  // its context outlives the sockets
  net::Alarm alarm_;
  net::SteadyTime cut_at_ = net::SteadyTime::max();
  std::vector<UpstreamConnection*> connections_;
  std::deque<std::unique_ptr<UpstreamConnection>> idle_;  // the most recently used one is the last
};

}  // namespace fenceguard::proxy
