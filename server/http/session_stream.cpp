#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "server/http/session.hpp"

namespace fenceguard::http {

const Request& SessionStream::request() const noexcept {
  return session_.head().request();
}

bool SessionStream::has_body() const noexcept {
  return session_.head().has_body();
}

std::optional<std::uint64_t> SessionStream::body_bytes() const noexcept {
  if (session_.head().is_chunked()) return std::nullopt;
  return session_.head().body_bytes();
}

bool SessionStream::expects_continue() const noexcept {
  return session_.head().expects_continue();
}

bool SessionStream::is_tls() const noexcept {
  return session_.service().tls != nullptr;
}

const std::string& SessionStream::peer() const noexcept {
  return session_.peer();
}

Loop& SessionStream::loop() noexcept {
  return session_.connection().loop();
}

bool SessionStream::take_whole_body(std::string& out) {
  return session_.body().take_whole(out);
}

Task<Piece> SessionStream::read_body(std::string& out, std::size_t bytes_max) {
  return session_.body().read(out, bytes_max);
}

void SessionStream::limit_body(std::chrono::milliseconds wait_max, SteadyTime until) {
  session_.body().limit(wait_max, until);
}

Response SessionStream::refused() const {
  return session_.refusal_response(
      session_.body().refusal().value_or(Rejection{400, "the body is malformed"}));
}

Task<bool> SessionStream::respond(Response response) {
  // A second answer would be taken for that to the next request.
  if (state_ != State::none) return []() -> Task<bool> { co_return false; }();
  state_ = State::ended;
  return session_.respond(std::move(response));
}

SessionStream::Coding SessionStream::coding_for(unsigned status,
                                                std::optional<std::uint64_t> body_bytes) const noexcept {
  if (!may_have_body(status) || session_.is_head()) return Coding::none;
  if (body_bytes) return Coding::length;
  return session_.is_http_1_0() ? Coding::until_close : Coding::chunks;
}

Task<bool> SessionStream::begin(Response head, std::optional<std::uint64_t> body_bytes) {
  if (state_ != State::none) co_return false;
  state_ = State::begun;
  coding_ = coding_for(head.status, body_bytes);
  bytes_left_ = body_bytes.value_or(0);
  auto framing = session_.frame(head.close || coding_ == Coding::until_close);
  framing.length = body_bytes;
  framing.is_chunked = coding_ == Coding::chunks;
  framing.is_streamed = true;
  write_head(session_.out(), head, framing);
  co_return !session_.connection().is_cut();
}

Task<bool> SessionStream::write(std::string_view piece) {
  auto& out = session_.out();
  if (state_ != State::begun) co_return false;
  if (coding_ == Coding::none || piece.empty()) piece = {};
  if (coding_ == Coding::length) {
    // More than was announced would be taken for the next answer.
    if (piece.size() > bytes_left_) co_return false;
    bytes_left_ -= piece.size();
  }
  const bool is_chunk = coding_ == Coding::chunks && !piece.empty();
  if (is_chunk) {
    if (std::exchange(owes_chunk_end_, false)) out.append("\r\n");
    fmt::format_to(std::back_inserter(out), "{:x}\r\n", piece.size());
  }
  if (piece.size() <= Transport::copied_bytes_max) {
    out.append(piece);
    if (is_chunk) out.append("\r\n");
    piece = {};
  } else {
    owes_chunk_end_ = is_chunk;
  }
  co_return co_await send(piece);
}

Task<bool> SessionStream::finish() {
  if (state_ != State::begun || (coding_ == Coding::length && bytes_left_ > 0)) co_return false;
  auto& out = session_.out();
  if (coding_ == Coding::chunks) out.append(owes_chunk_end_ ? "\r\n0\r\n\r\n" : "0\r\n\r\n");
  const bool is_sent = co_await send({});
  if (is_sent) state_ = State::ended;
  session_.end_answer(is_sent);
  co_return is_sent;
}

Task<bool> SessionStream::send(std::string_view body) {
  std::string_view head = session_.out();
  if (head.empty() && body.empty()) co_return !session_.connection().is_cut();
  auto& connection = session_.connection();
  bool is_sent = connection.send_now(head, body);
  if (is_sent && !(head.empty() && body.empty()))
    is_sent =
        co_await connection.send_rest(head, body, write_max_.value_or(session_.service().limits.write_max));
  session_.out().clear();
  co_return is_sent;
}

void SessionStream::watch(std::function<void()> gone) {
  session_.connection().watch(session_.shared_from_this(), session_.service().limits.header_bytes_max,
                              std::move(gone));
}

Task<void> SessionStream::stop_watching() {
  return session_.connection().stop_watching();
}

FastExchangePtr SessionStream::take_begun() noexcept {
  return session_.take_begun();
}

}  // namespace fenceguard::http
