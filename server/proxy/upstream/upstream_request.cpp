#include "server/proxy/upstream/upstream_request.hpp"

#include "server/proxy/request/field_names.hpp"
#include "server/proxy/request/location.hpp"
#include "server/proxy/upstream/early_response_detector.hpp"
#include "server/proxy/write_ending.hpp"

namespace fenceguard::proxy {
namespace {

constexpr std::size_t head_bytes_max = 64 * 1024;
constexpr unsigned interim_answers_max = 16;

net::SteadyTime after(std::chrono::milliseconds duration) {
  return std::chrono::steady_clock::now() + duration;
}

}  // namespace

void UpstreamRequest::adopt(BegunUpstream begun) {
  connection_ = std::move(begun.connection);
  if (connection_) begun_ = std::move(begun);
}

net::Task<UpstreamOutcome> UpstreamRequest::run(OutgoingRequest outgoing) {
  outgoing_ = outgoing;
  for (;;) {
    auto seen = UpstreamOutcome::unsent;
    const bool was_begun = begun_.has_value();
    if (!was_begun) {
      co_await pool_.loop().yield();
      connection_ = pool_.take();
      if (!connection_) connection_ = co_await pool_.connect(after(pool_.options().upstream_timeout));
      if (!connection_) co_return UpstreamOutcome::unsent;
    }
    const bool was_kept = connection_->is_reused();
    connection_->set_writes(outgoing_.claims);
    if (was_begun) {
      seen = co_await go_on();
    } else {
      seen = co_await exchange();
    }
    const bool is_repeated = was_kept && (seen == UpstreamOutcome::unsent ||
                                          (seen == UpstreamOutcome::silent && outgoing_.may_repeat));
    if (!is_repeated) co_return seen;
  }
}

// What was begun is sent as far as begun_ says.
net::Task<UpstreamOutcome> UpstreamRequest::go_on() {
  const auto begun = *std::exchange(begun_, std::nullopt);
  auto head = outgoing_.head;
  auto body = outgoing_.body;
  const auto of_head = std::min(begun.sent_bytes, head.size());
  head.remove_prefix(of_head);
  body.remove_prefix(begun.sent_bytes - of_head);
  is_early_ = begun.is_early;
  is_heard_ = !connection_->buffer().empty();
  connection_->release();
  // Of one that is late is_late() tells.
  if (!connection_->attach() && !connection_->is_late()) co_return broken();
  if (!head.empty() || !body.empty()) {
    const auto end = co_await send_rest(head, body);
    if (end) co_return *end;
    co_return co_await await_answer();
  }
  is_one_segment_ = is_one_segment(head, body);
  sent_at_ = begun.sent_at;
  if (is_heard_ && !connection_->is_late()) {
    const auto end = take();
    if (end) co_return *end;
  }
  if (begun.error) co_return ended(*begun.error);
  co_return co_await receive();
}

net::Task<UpstreamOutcome> UpstreamRequest::exchange() {
  auto head = outgoing_.head;
  auto body = outgoing_.body;
  auto& transport = connection_->transport();
  is_early_ = false;  // of a read that is repeated
  connection_->release();
  if (!connection_->attach()) {
    reset();
    co_return UpstreamOutcome::unsent;
  }
  const auto error = transport.write_now(head, body);
  is_one_segment_ = is_one_segment(head, body);
  if (error && error != net::asio::error::would_block) {
    // A socket that refuses the first byte has taken none.
    const bool is_unsent = !transport.is_tls();
    reset();
    co_return is_unsent ? UpstreamOutcome::unsent : UpstreamOutcome::broken;
  }
  if (!head.empty() || !body.empty() || outgoing_.rest != nullptr) {
    const auto end = co_await send_rest(head, body);
    if (end) co_return *end;
  }
  co_return co_await await_answer();
}

// Of head and body is left what was not sent at once.
bool UpstreamRequest::is_one_segment(std::string_view head, std::string_view body) const noexcept {
  return !outgoing_.is_write && head.empty() && body.empty() && outgoing_.rest == nullptr &&
         outgoing_.head.size() + outgoing_.body.size() <= connection_->segment_bytes();
}

net::Task<UpstreamOutcome> UpstreamRequest::await_answer() {
  sent_at_ = std::chrono::steady_clock::now();
  connection_->set_deadline(sent_at_ + pool_.options().upstream_timeout);
  if (is_heard_) {
    const auto end = take();
    if (end) co_return *end;
  }
  co_return co_await receive();
}

net::Task<UpstreamOutcome> UpstreamRequest::receive() {
  while (!connection_->is_late()) {
    auto& buffer = connection_->buffer();
    is_large_ = is_large_ || (body_ && body_->bytes_left().value_or(piece_bytes_max) > read_bytes_min);
    buffer.reserve(is_large_ ? piece_bytes_max : read_bytes_min);
    const auto [error, bytes] =
        co_await connection_->transport().read_some(buffer.room(), buffer.room_bytes());
    if (error) co_return ended(error);
    is_heard_ = true;
    buffer.commit(bytes);
    if (const auto end = take()) co_return *end;
  }
  reset();
  co_return UpstreamOutcome::late;
}

net::Task<UpstreamOutcome> UpstreamRequest::read_on(net::SteadyTime until) {
  if (connection_->is_late()) {
    reset();
    co_return UpstreamOutcome::late;
  }
  connection_->set_deadline(until);
  outgoing_.held_bytes_max = piece_bytes_max;
  if (!connection_->buffer().empty()) {
    if (const auto end = take()) co_return *end;
  }
  co_return co_await receive();
}

net::Task<UpstreamRequest::MaybeOutcome> UpstreamRequest::send_rest(std::string_view head,
                                                                    std::string_view body) {
  if (!head.empty() || !body.empty()) {
    const auto end = co_await send_part(head, body);
    if (end) co_return end;
  }
  if (outgoing_.rest == nullptr || is_early_) co_return std::nullopt;
  co_return co_await send_pieces();
}

net::Task<UpstreamRequest::MaybeOutcome> UpstreamRequest::send_pieces() {
  bool is_first = outgoing_.body.empty();
  if (outgoing_.is_overtaken) outgoing_.rest->limit_body(outgoing_.body_max, net::SteadyTime::max());
  for (auto piece = http::Piece::some; piece == http::Piece::some && !has_early_answer(); is_first = false) {
    connection_->clear_deadline();
    piece_.clear();
    look_for_successor();
    piece = co_await outgoing_.rest->read_body(piece_, piece_bytes_max);
    if (piece != http::Piece::some && piece != http::Piece::end) {
      body_end_ = piece;
      reset();
      co_return UpstreamOutcome::cut_off;
    }
    chunk_line_.clear();
    if (outgoing_.is_chunked && !piece_.empty()) write_chunk_line(chunk_line_, piece_.size(), is_first);
    if (outgoing_.is_chunked && piece == http::Piece::end) {
      write_chunk_line(last_chunk_, 0, is_first && piece_.empty());
      piece_.append(last_chunk_);
    }
    const auto end = co_await send_part(chunk_line_, piece_);
    if (end) co_return end;
    if (is_early_) break;
  }
  co_return std::nullopt;
}

void UpstreamRequest::look_for_successor() {
  if (is_overtaken_ || !outgoing_.is_overtaken || !outgoing_.is_overtaken()) return;
  is_overtaken_ = true;
  outgoing_.rest->limit_body(outgoing_.body_max, after(outgoing_.body_max));
}

// Nothing: it was sent, or an answer came before it was.
net::Task<UpstreamRequest::MaybeOutcome> UpstreamRequest::send_part(std::string_view head,
                                                                    std::string_view body) {
  auto& transport = connection_->transport();
  if (connection_->is_late()) {
    reset();
    co_return UpstreamOutcome::late;
  }
  auto error = transport.write_now(head, body);
  if (error == net::asio::error::would_block) error = {};
  if (!error && (!head.empty() || !body.empty())) {
    connection_->set_deadline(after(pool_.options().upstream_timeout));
    error = co_await write_all(head, body);
  }
  if (connection_->is_late()) {
    reset();
    co_return UpstreamOutcome::late;
  }
  // An upstream that closes may have answered before.
  if (error) is_early_ = true;
  co_return std::nullopt;
}

net::Task<net::Transport::Error> UpstreamRequest::write_all(std::string_view head, std::string_view body) {
  auto& transport = connection_->transport();
  if (transport.is_tls()) co_return co_await transport.write_all(head, body);
  while (!head.empty() || !body.empty()) {
    EarlyResponseDetector watch{transport};
    auto [error] = co_await transport.socket().async_wait(net::Socket::wait_write, net::as_result);
    if (watch.has_fired()) {
      if (has_early_answer()) break;
      error = {};
    }
    if (!error) error = transport.write_now(head, body);
    if (error && error != net::asio::error::would_block) co_return error;
  }
  co_return net::Transport::Error{};
}

bool UpstreamRequest::has_early_answer() {
  if (is_early_ || connection_->is_late()) return is_early_ = true;
  auto& buffer = connection_->buffer();
  buffer.reserve(read_bytes_min);
  const auto [error, bytes] = connection_->transport().read_now(buffer.room(), buffer.room_bytes());
  if (error == net::asio::error::would_block) return false;
  if (error) return is_early_ = true;
  is_heard_ = true;
  buffer.commit(bytes);
  return is_early_ = !is_interim_so_far();
}

bool UpstreamRequest::is_interim_so_far() {
  auto& buffer = connection_->buffer();
  while (!buffer.empty()) {
    const auto state = scanner_.scan(buffer.view());
    if (state == http::HeadScanner::State::incomplete) return buffer.size() < head_bytes_max;
    const auto end = scanner_.end();
    // What it is, take() finds out from its beginning.
    const bool is_odd = state == http::HeadScanner::State::malformed || scanner_.skip() > 0;
    scanner_ = {};
    if (is_odd) return false;
    const auto head = read_answer_head(buffer.view().substr(0, end));
    if (!head || !head->is_interim() || ++interim_answers_ > interim_answers_max) return false;
    buffer.consume(end);
  }
  return true;
}

UpstreamRequest::MaybeOutcome UpstreamRequest::take() {
  auto& buffer = connection_->buffer();
  while (!body_) {
    const auto state = scanner_.scan(buffer.view());
    if (state == http::HeadScanner::State::malformed) return broken();
    if (state == http::HeadScanner::State::incomplete) {
      if (buffer.size() < head_bytes_max) return std::nullopt;
      return broken();
    }
    if (const auto end = take_head()) return end;
  }
  buffer.consume(body_->read(buffer.view(), answer_.body));
  if (body_->is_odd()) return broken();
  if (body_->is_complete()) return complete();
  if (answer_.body.size() < outgoing_.held_bytes_max) return std::nullopt;
  connection_->clear_deadline();
  return UpstreamOutcome::begun;
}

UpstreamRequest::MaybeOutcome UpstreamRequest::take_head() {
  auto& buffer = connection_->buffer();
  // An empty line before it belongs to no answer.
  if (scanner_.skip() > 0 || scanner_.end() > head_bytes_max) return broken();
  const auto head = read_answer_head(buffer.view().substr(0, scanner_.end()));
  if (!head) return broken();
  if (!head->is_interim()) {
    take_fields(*head);
    body_.emplace(*head, outgoing_.answers_head);
  } else if (++interim_answers_ > interim_answers_max) {
    return broken();
  }
  buffer.consume(scanner_.end());
  scanner_ = {};
  return std::nullopt;
}

void UpstreamRequest::take_fields(const ResponseHead& head) {
  answer_.status = head.status;
  answer_.fields.reserve(head.fields.size() + 3);
  head.for_each_passed(outgoing_.drops_cache_rules, [this](std::string_view name, std::string_view value) {
    if (is_reference(name)) {
      answer_.fields.add(std::string{name}, as_seen_by_client(value, pool_.options().origin));
    } else {
      answer_.fields.add(std::string{name}, std::string{value});
    }
  });
  body_bytes_ = head.body_bytes;
  idle_max_ = head.idle_max;
  is_proof_ = !outgoing_.is_write || proves_end(head.status);
  is_reusable_ = is_proof_ && !head.is_http_1_0 && !head.connection.closes() && !outgoing_.is_last;
}

UpstreamOutcome UpstreamRequest::ended(const net::Transport::Error& error) {
  if (connection_->is_late()) {
    reset();
    return UpstreamOutcome::late;
  }
  if (!is_heard_) {
    reset();
    return UpstreamOutcome::silent;
  }
  if (error == net::asio::error::eof && body_) {
    body_->end();
    if (body_->is_complete()) return complete();
  }
  return broken();
}

UpstreamOutcome UpstreamRequest::complete() {
  is_early_ = is_early_ || (!is_one_segment_ && connection_->has_unsent());
  const bool is_kept = is_reusable_ && !is_early_ && !body_->lasts_to_end() && connection_->buffer().empty();
  if (is_kept) {
    connection_->clear_deadline();
    if (is_large_) connection_->buffer().shrink();
    pool_.keep(std::move(connection_), idle_max_);
  } else if (is_early_ || !is_proof_ || !connection_->buffer().empty()) {
    reset();
  }
  connection_.reset();
  return UpstreamOutcome::whole;
}

UpstreamOutcome UpstreamRequest::broken() noexcept {
  reset();
  return UpstreamOutcome::broken;
}

void UpstreamRequest::reset() noexcept {
  if (!connection_) return;
  connection_->transport().reset();
  connection_.reset();
}

}  // namespace fenceguard::proxy
