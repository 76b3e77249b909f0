#pragma once

// Connection: what a session moves its bytes with: the transport, what came on it and was not used yet, one
// deadline at a time, and the watch for a client that goes away. It knows no protocol.
//
// Thread safety: the loop's thread only.

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "server/net/loop.hpp"
#include "server/net/net.hpp"
#include "server/net/read/read_buffer.hpp"
#include "server/net/transport.hpp"
#include "server/net/wakeup.hpp"

namespace fenceguard::net {

class Connection {
 public:
  // What came of waiting for bytes. late: the deadline passed; ended: the client's end, a cut, a fault.
  enum class Arrival { ready, ended, late };

  Connection(Loop& loop, Transport transport);

  [[nodiscard]] Loop& loop() noexcept { return loop_; }
  [[nodiscard]] Transport& transport() noexcept { return transport_; }
  [[nodiscard]] ReadBuffer& buffer() noexcept { return buffer_; }

  // Waits for bytes behind those in the buffer, which has bytes_min of memory or more; filled() takes what
  // came of it. Two calls, so that a wait costs one coroutine.
  [[nodiscard]] Task<Transport::Read> fill(std::size_t bytes_min = ReadBuffer::small);
  [[nodiscard]] Arrival filled(const Transport::Read& read) noexcept;
  [[nodiscard]] Arrival arrival_of(const Transport::Error& error) const noexcept;
  // What came while a wait was being ended.
  [[nodiscard]] bool read_at_once();

  // Sends what the transport takes at once, and takes it off both parts. False if the connection is
  // broken.
  [[nodiscard]] bool send_now(std::string_view& first, std::string_view& second);
  // All of both, within duration. False if it was not taken.
  [[nodiscard]] Task<bool> send_rest(std::string_view first, std::string_view second,
                                     std::chrono::milliseconds duration);

  // Ends our side and reads what still comes for a while, so that the client sees the last answer.
  [[nodiscard]] Task<void> linger();

  // Has gone called if the client goes away before stop_watching(). It reads ahead, up to bytes_max in the
  // buffer, because bytes that stay in the socket hide the client's end; behind those it looks now and then.
  // owner is kept meanwhile.
  void watch(std::shared_ptr<void> owner, std::size_t bytes_max, std::function<void()> gone);
  [[nodiscard]] bool is_watching() const noexcept { return is_watching_; }
  [[nodiscard]] Task<void> stop_watching();
  [[nodiscard]] bool is_peer_gone() noexcept;

  [[nodiscard]] SteadyTime deadline() const noexcept { return deadline_; }
  void set_deadline(std::chrono::milliseconds duration);
  [[nodiscard]] bool is_late() const noexcept { return is_late_; }
  void clear_deadline() noexcept { deadline_ = SteadyTime::max(); }
  // Ends the present wait if the deadline has passed, and every later one until there is another deadline or
  // none.
  void expire(SteadyTime now);
  // Ends the present wait.
  void cancel() noexcept { transport_.cancel(); }

  // Closes at once; every wait ends, now and later.
  void cut();
  [[nodiscard]] bool is_cut() const noexcept { return is_cut_; }
  Wakeup& wakeup() noexcept { return wakeup_; }

 private:
  Task<void> watch_peer(std::shared_ptr<void> owner, std::size_t bytes_max);
  Task<void> look_for_end();
  void tell_gone() noexcept;

  Loop& loop_;
  Transport transport_;
  ReadBuffer buffer_;
  Wakeup wakeup_;
  std::function<void()> gone_;
  Timer* pause_ = nullptr;  // of the watch, between two looks
  SteadyTime deadline_ = SteadyTime::max();
  bool is_late_ = false;
  bool is_watching_ = false;
  bool is_watch_wanted_ = false;
  bool is_peer_gone_ = false;
  bool is_cut_ = false;
};

}  // namespace fenceguard::net
