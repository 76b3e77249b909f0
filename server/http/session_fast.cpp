#include "server/http/session_fast.hpp"

#include <algorithm>

namespace fenceguard::http {
namespace {

// What a plain request may take of the buffer.
constexpr std::size_t request_bytes_max = 16 * 1024;
// A connection whose requests are not plain is tried again after 1, 2, 4, ... of them, up to 2 to this power.
constexpr unsigned fall_backs_max = 6;

}  // namespace

bool FastSession::enter() {
  auto& connection = owner_.connection();
  if (owner_.fast_handler() == nullptr) return false;
  if (slow_left_ > 0) {
    --slow_left_;
    return false;
  }
  if (is_last()) return false;
  // What TLS has read ahead is not told.
  is_readable_ = connection.transport().is_tls();
  has_ended_ = false;
  if (!connection.transport().detach(loop().poller(), *this)) return false;
  is_on_ = true;
  kept_ = owner_.keep_alive();
  if (connection.buffer().empty()) wait();
  if (!connection.buffer().empty() || is_readable_) wake();
  return true;
}

void FastSession::wake() noexcept {
  loop().poller().defer(*this);
}

bool FastSession::is_last() const noexcept {
  return owner_.is_ending() || owner_.connection().loop().is_draining();
}

void FastSession::wait() {
  auto& connection = owner_.connection();
  is_idle_ = true;
  // A connection over TLS is large enough without a buffer that waits for its bytes.
  if (connection.transport().is_tls()) connection.buffer().release();
  connection.buffer().shrink();
  owner_.begin_waiting();
  connection.set_deadline(owner_.limits().idle_max);
}

void FastSession::ready(bool has_ended) noexcept {
  is_readable_ = true;
  has_ended_ = has_ended_ || has_ended;
  if (!is_idle_) return;
  try {
    read();
  } catch (...) {
    // Out of memory: this connection ends, the others go on.
    owner_.finish();
  }
}

void FastSession::run_deferred() noexcept {
  auto& connection = owner_.connection();
  // An exchange ends by itself: where all is cut, with its wait for the upstream.
  if (!is_on_ || exchange_) return;
  if (connection.is_cut() || (is_idle_ && connection.is_late())) return owner_.finish();
  try {
    next();
  } catch (...) {
    owner_.finish();
  }
}

void FastSession::next() {
  if (!owner_.connection().buffer().empty()) return serve();
  if (!is_idle_) wait();
  read();
}

void FastSession::read() {
  auto& connection = owner_.connection();
  auto& buffer = connection.buffer();
  const bool ends = is_last();
  if (!is_readable_ && !ends) return;
  buffer.reserve();
  for (auto rest = Rest::more; rest == Rest::more && buffer.size() < request_bytes_max;) {
    const auto room = buffer.room_bytes();
    const auto [error, bytes] = connection.transport().read_now(buffer.room(), room);
    if (error == asio::error::would_block) {
      is_readable_ = false;
      break;
    }
    // What came before it is for a coroutine, which finds the end again.
    if (error && buffer.empty()) return owner_.finish();
    if (error) return fall_back();
    buffer.commit(bytes);
    rest = connection.transport().rest(bytes, room);
    // The end is not told again.
    is_readable_ = has_ended_ || rest != Rest::none;
    if (bytes == room) buffer.reserve(request_bytes_max);
  }
  if (!buffer.empty()) return serve();
  if (ends) owner_.finish();
}

void FastSession::serve() {
  auto& connection = owner_.connection();
  const auto& limits = owner_.limits();
  is_idle_ = false;
  owner_.stop_waiting();
  connection.clear_deadline();
  PlainRequest request;
  const bool is_plain = request.read(connection.buffer().view(), limits.header_bytes_max) &&
                        request.body.size() <= limits.body_bytes_max;
  if (!is_plain) return fall_back();
  owner_.begin_plain(request);
  request_bytes_ = request.bytes;
  exchange_ = owner_.fast_handler()->begin(request, *this);
  if (!exchange_) return give_up(request, true);
  // It was plain, and has to wait for others: the next one may not have to.
  if (exchange_->is_given_back()) return give_up(request, false);
  loop().in_flight.fetch_add(1, std::memory_order_relaxed);
}

net::Loop& FastSession::loop() noexcept {
  return owner_.connection().loop();
}

const std::string& FastSession::peer() const noexcept {
  return owner_.peer();
}

bool FastSession::is_tls() const noexcept {
  return owner_.is_tls();
}

bool FastSession::is_local() const noexcept {
  return owner_.is_local();
}

Framing FastSession::frame_answer() {
  return owner_.frame(false);
}

std::string& FastSession::out() noexcept {
  return owner_.out();
}

void FastSession::send_answer(std::string_view body) noexcept {
  // Ends last: body may lie in it.
  const auto exchange = std::move(exchange_);
  auto& connection = owner_.connection();
  loop().in_flight.fetch_sub(1, std::memory_order_relaxed);
  connection.buffer().consume(request_bytes_);
  bool is_sent = false;
  try {
    std::string_view head;
    is_sent = send(head, body);
    if (is_sent && !(head.empty() && body.empty())) {
      std::string rest{head};
      owner_.out() = std::move(rest.append(body));
      return leave(true);
    }
  } catch (...) {
    is_sent = false;
  }
  end_answer(is_sent);
}

// False: the client is gone. Otherwise what was not taken is left in both.
bool FastSession::send(std::string_view& head, std::string_view& body) {
  auto& out = owner_.out();
  if (body.size() <= Transport::copied_bytes_max) {
    out.append(body);
    body = {};
  }
  head = out;
  return owner_.connection().send_now(head, body);
}

void FastSession::end_answer(bool is_sent) noexcept {
  fall_backs_ = 0;
  const auto next = owner_.next_after_answer(is_sent);
  if (next == Owner::Next::linger) return leave(false);
  if (next == Owner::Next::end) return owner_.finish();
  if (!owner_.connection().buffer().empty() || is_readable_) return wake();
  try {
    wait();
  } catch (...) {
    owner_.finish();
  }
}

void FastSession::fall_back() noexcept {
  if (exchange_) {
    loop().in_flight.fetch_sub(1, std::memory_order_relaxed);
    try {
      // It is in the buffer still, as it was when it was begun.
      PlainRequest request;
      (void)request.read(owner_.connection().buffer().view(), owner_.limits().header_bytes_max);
      return give_up(request, true);
    } catch (...) {
      return owner_.finish();
    }
  }
  skip_some();
  ++slow_left_;  // this one is among them
  leave(false);
}

void FastSession::give_up(const PlainRequest& request, bool is_odd) {
  owner_.keep_plain(request);
  if (is_odd) skip_some();
  leave(false);
}

void FastSession::skip_some() noexcept {
  slow_left_ = (1U << fall_backs_) - 1;
  fall_backs_ = std::min(fall_backs_ + 1, fall_backs_max);
}

void FastSession::leave(bool owes_answer) noexcept {
  is_on_ = is_idle_ = false;
  owner_.stop_waiting();
  owner_.connection().clear_deadline();
  // Where that fails it is closed, and the coroutine finds it so.
  (void)owner_.connection().transport().attach();
  owner_.spawn(owes_answer);
}

}  // namespace fenceguard::http
