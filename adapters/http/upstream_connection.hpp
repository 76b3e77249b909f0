#pragma once

// UpstreamConnection: one connection to the upstream, with what came on it and was not used yet, and its one
// deadline, which the pool keeps. A request has it alone.
//
// Thread safety: the loop's thread only.

#include <chrono>
#include <cstddef>
#include <memory>

#include "guard/http/channel.hpp"
#include "guard/http/net.hpp"
#include "guard/http/read_buffer.hpp"

namespace fenceguard::proxy {

class UpstreamPool;

class UpstreamConnection {
 public:
  UpstreamConnection(UpstreamPool& pool, http::Channel channel);
  // In order where the upstream has taken all that was sent, else by a reset.
  ~UpstreamConnection();
  UpstreamConnection(const UpstreamConnection&) = delete;
  UpstreamConnection& operator=(const UpstreamConnection&) = delete;

  [[nodiscard]] http::Channel& channel() noexcept { return channel_; }
  [[nodiscard]] http::ReadBuffer& buffer() noexcept { return buffer_; }

  // A request was answered on it before.
  [[nodiscard]] bool is_reused() const noexcept { return is_reused_; }

  // Something of what was sent has not arrived: whoever has answered has not seen all of it.
  [[nodiscard]] bool has_unsent() noexcept;

  // What one segment takes; 0 where that is not known.
  [[nodiscard]] std::size_t segment_bytes() const noexcept { return segment_bytes_; }

  // At the deadline the connection is reset, every wait on it ends with an error, and is_late() is true. The
  // channel is not used any more then.
  void set_deadline(http::SteadyTime deadline);
  void clear_deadline() noexcept { deadline_ = http::SteadyTime::max(); }
  [[nodiscard]] bool is_late() const noexcept { return is_late_; }

  // From the pool.
  [[nodiscard]] http::SteadyTime deadline() const noexcept { return deadline_; }
  void expire() noexcept;
  void begin_idle(http::SteadyTime now) noexcept {
    is_reused_ = true;
    idle_since_ = now;
  }
  [[nodiscard]] http::SteadyTime idle_since() const noexcept { return idle_since_; }
  // Once it is connected.
  void look_at_segments() noexcept;
  std::size_t place_in_pool = 0;

 private:
  UpstreamPool& pool_;
  http::Channel channel_;
  http::ReadBuffer buffer_;
  http::SteadyTime deadline_ = http::SteadyTime::max();
  http::SteadyTime idle_since_{};
  std::size_t segment_bytes_ = 0;
  bool is_reused_ = false;
  bool is_late_ = false;
};

}  // namespace fenceguard::proxy
