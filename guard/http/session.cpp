#include "guard/http/session.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>

#include "guard/http/chunk_reader.hpp"

namespace fenceguard::http {
namespace {

// A body up to this size is copied behind its header block, so that one buffer goes out.
constexpr std::size_t copied_body_bytes_max = 16 * 1024;
// What a connection keeps of its memory for answers.
constexpr std::size_t kept_out_bytes_max = 4 * 1024;
// A client that is still sending when it is refused gets this much time and room to see the answer.
constexpr std::chrono::milliseconds linger_max{2000};
constexpr std::size_t linger_bytes_max = 32 * 1024 * 1024;

}  // namespace

Session::Session(Loop& loop, Socket socket, std::shared_ptr<Service> service)
    : loop_{loop}, socket_{std::move(socket)}, service_{std::move(service)} {}

void Session::start() {
  try {
    loop_.add(*this);
    asio::co_spawn(loop_.context(), run(), asio::detached);
  } catch (...) {
    finish();
  }
}

Task<void> Session::run() {
  const auto self = shared_from_this();
  try {
    while (co_await serve_request()) {
    }
    if (is_lingering_) co_await linger();
  } catch (...) {
    // Out of memory, most likely: this connection ends, the others go on.
  }
  finish();
}

void Session::finish() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  loop_.remove(*this);
  service_->connections.fetch_sub(1);
  service_->census.leave();
}

Task<bool> Session::serve_request() {
  HeadScanner scanner;
  is_unread_ = true;
  is_head_ = false;
  const auto arrival = co_await await_head(scanner);
  if (arrival == Arrival::ended) co_return false;
  if (arrival == Arrival::late)
    co_return co_await respond_refusal({408, "the request took too long to arrive"});
  if (arrival == Arrival::malformed) co_return co_await respond_refusal({400, "the request is malformed"});
  if (arrival == Arrival::too_large) {
    co_return co_await respond_refusal({431, "the header block is larger than this server takes"});
  }
  RequestReader& reader = reader_.emplace(service_->limits.body_bytes_max);
  const auto refusal =
      reader.read_head(buffer_.view().substr(scanner.skip(), scanner.end() - scanner.skip()));
  buffer_.consume(scanner.end());
  is_head_ = reader.request().method == "HEAD";
  if (refusal) co_return co_await respond_refusal(*refusal);
  keeps_alive_ = reader.wants_keep_alive();
  is_http_1_0_ = reader.is_http_1_0();
  reader.request().local_socket = service_->is_local;
  is_unread_ = reader.has_body();
  answer_ = preview(reader.request());
  if (answer_) co_return co_await respond();
  if (is_unread_ && !take_buffered_body(reader)) {
    const auto body_refusal = co_await read_body(reader);
    if (body_refusal) co_return co_await respond_refusal(*body_refusal);
  }
  is_unread_ = false;
  dispatch(std::move(reader.request()));
  reader_.reset();
  while (!answer_ && !is_cut_) co_await wakeup_.wait();
  if (!answer_) co_return false;
  co_return co_await respond();
}

Task<Session::Arrival> Session::await_head(HeadScanner& scanner) {
  const auto bytes_max = service_->limits.header_bytes_max;
  if (buffer_.empty()) {
    buffer_.shrink();
    if (loop_.is_draining()) co_return Arrival::ended;
    is_idle_ = true;
    set_deadline(service_->limits.idle_max);
    const auto arrival = co_await fill_buffer();
    is_idle_ = false;
    const bool is_missed = arrival == Arrival::ended && loop_.is_draining() && read_at_once();
    if (arrival != Arrival::ready && !is_missed) co_return Arrival::ended;
  }
  auto state = scanner.scan(buffer_.view());
  if (state == HeadScanner::State::incomplete) set_deadline(service_->limits.header_max);
  while (state == HeadScanner::State::incomplete) {
    if (buffer_.size() >= bytes_max) co_return Arrival::too_large;
    const auto arrival = co_await fill_buffer();
    if (arrival != Arrival::ready) co_return arrival;
    state = scanner.scan(buffer_.view());
  }
  deadline_ = SteadyTime::max();
  if (state == HeadScanner::State::malformed) co_return Arrival::malformed;
  co_return scanner.end() - scanner.skip() > bytes_max ? Arrival::too_large : Arrival::ready;
}

bool Session::read_at_once() {
  buffer_.reserve();
  const auto received = ::recv(socket_.native_handle(), buffer_.room(), buffer_.room_bytes(), MSG_DONTWAIT);
  if (received <= 0) return false;
  buffer_.commit(static_cast<std::size_t>(received));
  return true;
}

bool Session::take_buffered_body(RequestReader& reader) {
  if (reader.is_chunked() || reader.body_bytes() > buffer_.size()) return false;
  const auto body = buffer_.view().substr(0, static_cast<std::size_t>(reader.body_bytes()));
  reader.request().body.assign(body);
  buffer_.consume(body.size());
  return true;
}

Task<Session::MaybeRefusal> Session::read_body(RequestReader& reader) {
  if (reader.expects_continue() && buffer_.empty()) {
    std::string_view head = "HTTP/1.1 100 Continue\r\n\r\n";
    std::string_view none;
    set_deadline(service_->limits.write_max);
    if (!send_now(head, none)) co_return Refusal{400, "the connection broke"};
    if (!head.empty()) co_await send_rest(head, none);
  }
  set_deadline(service_->limits.body_max);
  auto refusal = reader.is_chunked() ? co_await read_chunked_body(reader) : co_await read_sized_body(reader);
  deadline_ = SteadyTime::max();
  co_return refusal;
}

Task<Session::MaybeRefusal> Session::read_sized_body(RequestReader& reader) {
  constexpr std::size_t first_bytes = 8 * 1024;
  const auto total = static_cast<std::size_t>(reader.body_bytes());
  auto& body = reader.request().body;
  body.assign(buffer_.view().substr(0, total));
  buffer_.consume(body.size());
  auto filled = body.size();
  while (filled < total) {
    // Grows with what has really come, not with what was announced.
    if (filled == body.size()) body.resize(std::min(total, std::max(first_bytes, filled * 2)));
    const auto room = asio::buffer(body.data() + filled, body.size() - filled);
    const auto [error, received] = co_await socket_.async_read_some(room, as_result);
    if (arrival_of(error) == Arrival::late) co_return Refusal{408, "the body took too long to arrive"};
    if (error) co_return Refusal{400, "the body is shorter than its Content-Length"};
    filled += received;
  }
  co_return MaybeRefusal{};
}

Task<Session::MaybeRefusal> Session::read_chunked_body(RequestReader& reader) {
  ChunkReader chunks{service_->limits.body_bytes_max};
  for (;;) {
    buffer_.consume(chunks.read(buffer_.view(), reader.request().body));
    if (chunks.refusal()) co_return chunks.refusal();
    if (chunks.is_complete()) co_return MaybeRefusal{};
    const auto arrival = co_await fill_buffer();
    if (arrival == Arrival::late) co_return Refusal{408, "the body took too long to arrive"};
    if (arrival != Arrival::ready) co_return Refusal{400, "the body ends before its last chunk"};
  }
}

Task<Session::Arrival> Session::fill_buffer() {
  buffer_.reserve();
  const auto room = asio::buffer(buffer_.room(), buffer_.room_bytes());
  const auto [error, received] = co_await socket_.async_read_some(room, as_result);
  if (!error) buffer_.commit(received);
  co_return arrival_of(error);
}

Session::Arrival Session::arrival_of(const boost::system::error_code& error) const noexcept {
  if (!error) return Arrival::ready;
  return error == asio::error::operation_aborted && is_late_ ? Arrival::late : Arrival::ended;
}

std::optional<Response> Session::preview(const Request& head) noexcept {
  try {
    return service_->handler.preview(head);
  } catch (...) {
    return refusal_response({500, "the request could not be looked at"});
  }
}

void Session::dispatch(Request request) {
  ++number_;
  answer_.reset();
  is_waiting_ = is_dispatching_ = true;
  try {
    auto exchange = std::make_shared<Exchange>(loop_.shared_from_this(), weak_from_this(), number_);
    exchange_ = exchange;
    std::shared_ptr<Caller> caller = exchange;
    Reply reply = [exchange = std::move(exchange)](Response response) {
      exchange->reply(std::move(response));
    };
    service_->handler.handle(std::move(request), std::move(caller), std::move(reply));
  } catch (...) {
    take_failure(number_, "the request could not be answered");
  }
  is_dispatching_ = false;
}

void Session::take_answer(Response& response) {
  is_waiting_ = false;
  answer_ = std::move(response);
  wakeup_.wake();
}

void Session::take_failure(std::uint64_t number, std::string_view why) {
  if (!is_waiting(number)) return;
  auto response = refusal_response({500, why});
  take_answer(response);
}

Response Session::refusal_response(Refusal refusal) noexcept {
  Response response;
  try {
    response = service_->handler.refuse(refusal.status, refusal.why);
  } catch (...) {
    response.status = refusal.status;
  }
  response.close = true;
  return response;
}

Task<bool> Session::respond_refusal(Refusal refusal) {
  answer_ = refusal_response(refusal);
  co_return co_await respond();
}

Task<bool> Session::respond() {
  const Response response = std::move(*answer_);
  answer_.reset();
  if (is_watching_) co_await stop_watching();
  if (response.undelivered && is_peer_gone()) {
    call_safely(response.undelivered);
    co_return false;
  }
  const bool closes = response.close || is_unread_ || !keeps_alive_ || loop_.is_draining();
  const Framing framing{is_head_, closes, is_http_1_0_, loop_.date()};
  out_.clear();
  write_head(out_, response, framing);
  std::string_view body;
  if (sends_body(response, framing)) body = response.body;
  if (body.size() <= copied_body_bytes_max) {
    out_.append(body);
    body = {};
  }
  std::string_view head = out_;
  bool is_sent = send_now(head, body);
  if (is_sent && !(head.empty() && body.empty())) {
    set_deadline(service_->limits.write_max);
    is_sent = co_await send_rest(head, body);
  }
  if (out_.capacity() > kept_out_bytes_max) std::string{}.swap(out_);
  if (!is_sent) call_safely(response.undelivered);
  // Whoever asked for the end himself sends no more; anybody else may be, and a reset would cost him the
  // answer.
  is_lingering_ = is_sent && closes && (keeps_alive_ || is_unread_ || !buffer_.empty());
  co_return is_sent && !closes;
}

bool Session::send_now(std::string_view& head, std::string_view& body) {
  std::array<iovec, 2> parts{iovec{const_cast<char*>(head.data()), head.size()},
                             iovec{const_cast<char*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = body.empty() ? 1 : 2;
  const auto sent = ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  const auto bytes = static_cast<std::size_t>(sent);
  const auto of_head = std::min(bytes, head.size());
  head.remove_prefix(of_head);
  body.remove_prefix(bytes - of_head);
  return true;
}

Task<bool> Session::send_rest(std::string_view head, std::string_view body) {
  const std::array<asio::const_buffer, 2> parts{asio::buffer(head), asio::buffer(body)};
  const auto [error, sent] = co_await asio::async_write(socket_, parts, as_result);
  deadline_ = SteadyTime::max();
  co_return !error;
}

Task<void> Session::linger() {
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  set_deadline(linger_max);
  for (std::size_t dropped = 0; dropped < linger_bytes_max;) {
    buffer_.consume(buffer_.size());
    if (co_await fill_buffer() != Arrival::ready) break;
    dropped += buffer_.size();
  }
}

bool Session::is_peer_gone() {
  if (is_peer_gone_ || is_cut_) return true;
  char byte = 0;
  const auto received = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR);
}

void Session::watch(std::uint64_t number) {
  if (!is_waiting(number) || is_watching_) return;
  is_watching_ = true;
  try {
    asio::co_spawn(loop_.context(), watch_peer(number), asio::detached);
  } catch (...) {
    is_watching_ = false;
  }
}

// Reads ahead what the client has pipelined, because bytes that stay in the socket would hide its end.
Task<void> Session::watch_peer(std::uint64_t number) {
  const auto self = shared_from_this();
  try {
    while (is_waiting(number) && buffer_.size() < service_->limits.header_bytes_max) {
      const auto arrival = co_await fill_buffer();
      if (arrival == Arrival::ready) continue;
      if (!is_waiting(number)) break;
      is_peer_gone_ = true;
      if (const auto exchange = exchange_.lock()) exchange->tell_gone();
      break;
    }
  } catch (...) {
    // Out of memory: nobody watches then.
  }
  is_watching_ = false;
  asio::post(loop_.context(), [self] { self->wakeup_.wake(); });
}

Task<void> Session::stop_watching() {
  boost::system::error_code ignored;
  socket_.cancel(ignored);
  while (is_watching_) co_await wakeup_.wait();
}

void Session::set_deadline(std::chrono::milliseconds duration) {
  is_late_ = false;
  deadline_ = std::chrono::steady_clock::now() + duration;
  loop_.arm(deadline_);
}

void Session::expire(SteadyTime now) {
  if (deadline_ > now) return;
  deadline_ = SteadyTime::max();
  is_late_ = true;
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void Session::begin_drain() {
  boost::system::error_code ignored;
  if (is_idle_) socket_.cancel(ignored);
}

void Session::cut() {
  is_cut_ = true;
  const bool was_waiting = std::exchange(is_waiting_, false);
  boost::system::error_code ignored;
  socket_.close(ignored);
  const auto exchange = exchange_.lock();
  if (was_waiting && exchange) exchange->tell_gone();
  wakeup_.wake();
}

}  // namespace fenceguard::http
