#include "server/net/connection.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace fenceguard::net {
namespace {

// A client that is still sending when it is refused gets this much time and room to see the answer.
constexpr std::chrono::milliseconds linger_max{2000};
constexpr std::size_t linger_bytes_max = 32 * 1024 * 1024;
// A cancel between the end of a wait and the coroutine that goes on hits nothing, and the next wait would be
// one without a deadline.
constexpr std::chrono::milliseconds cancel_again_after{20};
constexpr std::chrono::milliseconds look_for_end_after{500};

}  // namespace

Connection::Connection(Loop& loop, Transport transport) : loop_{loop}, transport_{std::move(transport)} {}

Task<Transport::Read> Connection::fill(std::size_t bytes_min) {
  buffer_.reserve(bytes_min);
  return transport_.read_some(buffer_.room(), buffer_.room_bytes());
}

Connection::Arrival Connection::filled(const Transport::Read& read) noexcept {
  const auto& [error, received] = read;
  if (!error) buffer_.commit(received);
  return arrival_of(error);
}

Connection::Arrival Connection::arrival_of(const Transport::Error& error) const noexcept {
  if (!error) return Arrival::ready;
  return error == asio::error::operation_aborted && is_late_ ? Arrival::late : Arrival::ended;
}

bool Connection::read_at_once() {
  buffer_.reserve();
  return filled(transport_.read_now(buffer_.room(), buffer_.room_bytes())) == Arrival::ready;
}

bool Connection::send_now(std::string_view& first, std::string_view& second) {
  const auto error = transport_.write_now(first, second);
  return !error || error == asio::error::would_block;
}

Task<bool> Connection::send_rest(std::string_view first, std::string_view second,
                                 std::chrono::milliseconds duration) {
  set_deadline(duration);
  const auto error = co_await transport_.write_all(first, second);
  clear_deadline();
  co_return !error;
}

Task<void> Connection::linger() {
  transport_.shutdown_send();
  set_deadline(linger_max);
  for (std::size_t dropped = 0; dropped < linger_bytes_max && !is_late_;) {
    buffer_.consume(buffer_.size());
    if (filled(co_await fill()) != Arrival::ready) break;
    dropped += buffer_.size();
  }
}

bool Connection::is_peer_gone() noexcept {
  return is_peer_gone_ || is_cut_ || transport_.is_ended() || transport_.is_hung_up();
}

void Connection::watch(std::shared_ptr<void> owner, std::size_t bytes_max, std::function<void()> gone) {
  gone_ = std::move(gone);
  is_watch_wanted_ = true;
  if (is_cut_ || is_peer_gone_) return tell_gone();
  if (is_watching_) return;
  is_watching_ = true;
  try {
    asio::co_spawn(loop_.context(), watch_peer(std::move(owner), bytes_max), asio::detached);
  } catch (...) {
    // Out of memory: the connection is not watched then.
    is_watching_ = false;
  }
}

Task<void> Connection::watch_peer(std::shared_ptr<void> owner, std::size_t bytes_max) {
  try {
    while (is_watch_wanted_ && buffer_.size() < bytes_max) {
      const auto arrival = filled(co_await fill());
      if (arrival == Arrival::ready) continue;
      if (!is_watch_wanted_) break;
      is_peer_gone_ = true;
      tell_gone();
      break;
    }
    if (is_watch_wanted_) co_await look_for_end();
  } catch (...) {
    // Out of memory: the connection is not watched then.
  }
  is_watching_ = false;
  bool is_posted = true;
  try {
    asio::post(loop_.context(), [this, owner] { wakeup_.wake(); });
  } catch (...) {
    is_posted = false;
  }
  // Within this call: better than never.
  if (!is_posted) wakeup_.wake();
}

// The end behind bytes that are left where they are.
Task<void> Connection::look_for_end() {
  Timer pause{loop_.context()};
  pause_ = &pause;
  while (is_watch_wanted_ && !is_peer_gone_) {
    pause.expires_after(look_for_end_after);
    (void)co_await pause.async_wait(as_result);
    is_peer_gone_ = is_watch_wanted_ && transport_.is_hung_up();
  }
  pause_ = nullptr;
  if (is_peer_gone_) tell_gone();
}

Task<void> Connection::stop_watching() {
  is_watch_wanted_ = false;
  gone_ = nullptr;
  if (pause_ != nullptr) pause_->cancel();
  transport_.cancel();
  while (is_watching_) co_await wakeup_.wait();
}

void Connection::tell_gone() noexcept {
  is_watch_wanted_ = false;
  call_safely(std::exchange(gone_, nullptr));
}

void Connection::set_deadline(std::chrono::milliseconds duration) {
  is_late_ = false;
  deadline_ = std::chrono::steady_clock::now() + duration;
  loop_.arm(deadline_);
}

void Connection::expire(SteadyTime now) {
  if (deadline_ > now) return;
  is_late_ = true;
  deadline_ = now + cancel_again_after;
  transport_.cancel();
}

void Connection::cut() {
  is_cut_ = true;
  transport_.close();
  tell_gone();
}

}  // namespace fenceguard::net
