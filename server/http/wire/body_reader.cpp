#include "server/http/wire/body_reader.hpp"

#include <algorithm>

namespace fenceguard::http {
namespace {

// A body in chunks always passes through the buffer; up to this much of it at a time.
constexpr std::size_t chunked_buffer_bytes = 16 * 1024;
// Below this share of its room what came is little.
constexpr std::size_t flowing_share = 8;
// What a long body earns for what has come of it.
constexpr std::uint64_t bytes_before_earning = 1024 * 1024;
constexpr std::uint64_t bytes_per_second_earned = 64 * 1024;

constexpr std::string_view continue_head = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

BodyReader::BodyReader(Connection& connection, const Limits& limits, bool earns_time)
    : connection_{connection}, limits_{limits}, earns_time_{earns_time} {}

void BodyReader::begin(const RequestReader& head) {
  chunks_.reset();
  if (head.is_chunked()) chunks_.emplace(limits_.body_bytes_max);
  bytes_left_ = head.body_bytes();
  bytes_seen_ = 0;
  time_left_ = limits_.body_max;
  wait_max_ = std::chrono::nanoseconds::max();
  until_ = SteadyTime::max();
  refusal_.reset();
  must_ask_ = head.expects_continue();
  // A head that came in a full buffer has more behind it.
  is_flowing_ = connection_.buffer().room_bytes() == 0;
  is_complete_ = !head.has_body();
}

bool BodyReader::take_whole(std::string& out) {
  auto& buffer = connection_.buffer();
  if (is_complete_) return true;
  if (!chunks_) {
    if (bytes_left_ > buffer.size()) return false;
    const auto body = buffer.view().substr(0, static_cast<std::size_t>(bytes_left_));
    out.append(body);
    buffer.consume(body.size());
    return is_complete_ = true;
  }
  const auto before = out.size();
  ChunkReader ahead = *chunks_;
  const auto used = ahead.read(buffer.view(), out);
  if (!ahead.is_complete()) {
    out.resize(before);
    return false;
  }
  buffer.consume(used);
  return is_complete_ = true;
}

std::optional<Piece> BodyReader::take_buffered(std::string& out, std::size_t bytes_max) {
  auto& buffer = connection_.buffer();
  const auto before = out.size();
  if (chunks_) {
    buffer.consume(chunks_->read(buffer.view(), out, bytes_max));
    if (chunks_->refusal()) return refuse(Piece::malformed, *chunks_->refusal());
    is_complete_ = chunks_->is_complete();
  } else {
    const auto there = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes_left_));
    const auto piece = buffer.view().substr(0, std::min(there, bytes_max));
    out.append(piece);
    buffer.consume(piece.size());
    bytes_left_ -= piece.size();
    is_complete_ = bytes_left_ == 0;
  }
  earn_time(out.size() - before);
  if (is_complete_) return Piece::end;
  if (out.size() > before) return Piece::some;
  return std::nullopt;
}

Task<Transport::Read> BodyReader::wait_for_more(std::string& out, std::size_t bytes_max) {
  is_straight_ = is_flowing_ && !chunks_;
  if (!is_straight_) return connection_.fill(is_flowing_ ? chunked_buffer_bytes : ReadBuffer::small);
  const auto before = out.size();
  const auto room = static_cast<std::size_t>(std::min<std::uint64_t>(bytes_max, bytes_left_));
  out.resize(before + room);
  return connection_.transport().read_some(out.data() + before, room);
}

Connection::Arrival BodyReader::take(const Transport::Read& read, std::string& out, std::size_t before) {
  if (!is_straight_) {
    const auto arrival = connection_.filled(read);
    is_flowing_ = connection_.buffer().room_bytes() == 0;
    return arrival;
  }
  const auto [error, received] = read;
  is_flowing_ = received >= (out.size() - before) / flowing_share;
  out.resize(before + received);
  bytes_left_ -= received;
  is_complete_ = bytes_left_ == 0;
  earn_time(received);
  return connection_.arrival_of(error);
}

Task<Piece> BodyReader::read(std::string& out, std::size_t bytes_max) {
  if (is_complete_) co_return Piece::end;
  if (must_ask_ && !co_await ask_for_it()) co_return Piece::gone;
  const auto before = out.size();
  constexpr Rejection too_slow{408, "the body took too long to arrive"};
  for (;;) {
    if (std::chrono::steady_clock::now() >= until_) co_return refuse(Piece::late, too_slow);
    if (const auto piece = take_buffered(out, bytes_max)) co_return *piece;
    const auto begin = std::chrono::steady_clock::now();
    connection_.set_deadline(patience(begin));
    const auto arrival = take(co_await wait_for_more(out, bytes_max), out, before);
    connection_.clear_deadline();
    time_left_ -= std::min(time_left_, std::chrono::steady_clock::now() - begin);
    if (arrival == Connection::Arrival::late) co_return refuse(Piece::late, too_slow);
    if (arrival == Connection::Arrival::ended) {
      co_return refuse(Piece::gone, chunks_ ? Rejection{400, "the body ends before its last chunk"}
                                            : Rejection{400, "the body is shorter than its Content-Length"});
    }
    if (is_straight_) co_return is_complete_ ? Piece::end : Piece::some;
  }
}

Task<bool> BodyReader::ask_for_it() {
  must_ask_ = false;
  if (!connection_.buffer().empty()) co_return true;
  std::string_view head = continue_head;
  std::string_view none;
  bool is_sent = connection_.send_now(head, none);
  if (is_sent && !head.empty()) is_sent = co_await connection_.send_rest(head, none, limits_.write_max);
  if (!is_sent) refuse(Piece::gone, {400, "the connection broke"});
  co_return is_sent;
}

void BodyReader::limit(std::chrono::nanoseconds wait_max, SteadyTime until) noexcept {
  wait_max_ = wait_max;
  until_ = until;
}

std::chrono::milliseconds BodyReader::patience(SteadyTime now) const noexcept {
  const auto left = std::min<std::chrono::nanoseconds>({time_left_, wait_max_, until_ - now});
  return std::chrono::duration_cast<std::chrono::milliseconds>(left);
}

void BodyReader::earn_time(std::size_t bytes) noexcept {
  bytes_seen_ += bytes;
  if (!earns_time_ || bytes_seen_ <= bytes_before_earning) return;
  const auto earning = std::min<std::uint64_t>(bytes, bytes_seen_ - bytes_before_earning);
  time_left_ += std::chrono::nanoseconds{earning * 1'000'000'000 / bytes_per_second_earned};
}

Piece BodyReader::refuse(Piece piece, Rejection refusal) {
  refusal_ = refusal;
  return piece;
}

}  // namespace fenceguard::http
