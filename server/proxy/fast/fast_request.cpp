#include "server/proxy/fast/fast_request.hpp"

#include "server/http/wire/request_reader.hpp"
#include "server/proxy/request/location.hpp"
#include "server/proxy/responses.hpp"
#include "server/proxy/write_ending.hpp"

namespace fenceguard::proxy {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kept_outgoing_bytes_max = 4 * 1024;
constexpr std::size_t spare_max = 1024;

}  // namespace

void FastRequest::begin(const Method& method, std::optional<Claim> claim, http::FastClient& client) {
  client_ = &client;
  method_ = method;
  claim_ = std::move(claim);
  begun_at_ = steady_clock::now();
  if (claim_) {
    const auto ticket = shared_.lanes.new_ticket();
    const auto highest = shared_.lanes.enter_at_once(ticket, is_write() ? Kind::write : Kind::read, *claim_);
    is_given_back_ = !highest;
    if (!highest) return;
    ticket_ = ticket;
    highest_ = *highest;
  }
  client.loop().poller().defer(*this);
}

void FastRequest::run_deferred() noexcept {
  if (is_given_back_) return;
  if (is_sent_) return fall_back();  // it is late
  try {
    send();
  } catch (...) {
    fall_back();
  }
}

void FastRequest::send() {
  auto& connection = upstream_.connection;
  connection = shared_.pool.take();
  if (!connection) return fall_back();
  if (!connection->lend(*this)) {
    connection.reset();
    return fall_back();
  }
  std::string_view head = outgoing_;
  std::string_view body;
  const auto error = connection->transport().write_now(head, body);
  if (error && error != net::asio::error::would_block) {
    // A socket that refuses the first byte has taken none.
    connection->transport().reset();
    connection.reset();
    return fall_back();
  }
  is_sent_ = true;
  if (is_write() && claim_) connection->set_writes({&*claim_, 1});
  upstream_.sent_bytes = outgoing_.size() - head.size();
  if (!head.empty()) return fall_back();
  is_one_segment_ = !is_write() && outgoing_.size() <= connection->segment_bytes();
  upstream_.sent_at = steady_clock::now();
  connection->set_deadline(upstream_.sent_at + shared_.pool.options().upstream_timeout);
}

void FastRequest::upstream_ready() noexcept {
  if (!is_sent_ || is_given_back_) return;
  try {
    auto& connection = *upstream_.connection;
    auto& buffer = connection.buffer();
    buffer.reserve(read_bytes_min);
    const auto [error, bytes] = connection.transport().read_now(buffer.room(), buffer.room_bytes());
    if (error == net::asio::error::would_block) return;
    if (error) upstream_.error = error;
    if (error) return fall_back();
    buffer.commit(bytes);
    const auto body = read_answer();
    if (!body) return fall_back();
    write_answer(body->size());
    if (!leave_lane()) return fall_back();
    note_end();
    is_over_ = true;
    idle_max_ = shared_.answer.idle_max;
    client_->send_answer(*body);
  } catch (...) {
    fall_back();
  }
}

std::optional<std::string_view> FastRequest::read_answer() {
  auto& connection = *upstream_.connection;
  const auto seen = connection.buffer().view();
  http::HeadScanner scanner;
  if (scanner.scan(seen) != http::HeadScanner::State::complete || scanner.skip() > 0) return std::nullopt;
  auto& head = shared_.answer;
  if (!read_answer_head(seen.substr(0, scanner.end()), head)) return std::nullopt;
  if (head.is_interim() || head.is_http_1_0 || head.is_chunked || head.connection.closes())
    return std::nullopt;
  const auto body = seen.substr(scanner.end());
  const bool has_none = !http::may_have_body(head.status);
  if (!has_none && !head.body_bytes) return std::nullopt;
  if (body.size() != (has_none ? 0 : *head.body_bytes)) return std::nullopt;
  upstream_.is_early = !is_one_segment_ && connection.has_unsent();
  if (upstream_.is_early) return std::nullopt;
  if (is_write() && ending_of_answer(head.status, false, false) == Ending::unknown) return std::nullopt;
  return body;
}

void FastRequest::write_answer(std::size_t body_bytes) {
  const auto& head = shared_.answer;
  const auto framing = client_->frame_answer();
  auto& out = client_->out();
  http::begin_head(out, head.status, framing.date);
  const auto add = [&](std::string_view name, std::string_view value) {
    http::append_field(out, name, value);
  };
  head.for_each_passed(ticket_ && !is_write(), [&](std::string_view name, std::string_view value) {
    if (!is_reference(name)) return add(name, value);
    add(name, as_seen_by_client(value, shared_.pool.options().origin));
  });
  if (ticket_) add_ruling_to(add, Verdict::admitted, highest_);
  if (!is_write()) add_cache_rules_to(add, ticket_.has_value());
  http::end_head(out, head.status, body_bytes, framing);
}

bool FastRequest::leave_lane() noexcept {
  if (!ticket_) return true;
  if (is_write()) {
    // Without a sequence there is nothing to wait for.
    (void)shared_.lanes.leave(*ticket_, ending_of_answer(shared_.answer.status, false, false),
                              [](const LeftEvent&) {});
  } else if (!shared_.lanes.end_admitted_read(*ticket_)) {
    return false;
  }
  ticket_.reset();
  return true;
}

// It has left its lane, so nothing here may keep its client from being told.
void FastRequest::note_end() noexcept {
  const auto& context = shared_.context;
  const auto now = steady_clock::now();
  shared_.served.fetch_add(1, std::memory_order_relaxed);
  try {
    context.metrics.observe_upstream(now - upstream_.sent_at);
    if (is_write()) context.metrics.observe_write(now - begun_at_);
    if (!claim_) return;
    context.metrics.count(Verdict::admitted);
    context.log.ruled(is_write() ? "write" : "read", *claim_, {Verdict::admitted, highest_, std::nullopt},
                      client_->is_local() ? "unix" : client_->peer());
  } catch (...) {
    // Out of memory for a line of the log.
  }
}

void FastRequest::upstream_late() noexcept {
  if (!is_given_back_) client_->loop().poller().defer(*this);
}

void FastRequest::fall_back() noexcept {
  is_given_back_ = true;
  client_->fall_back();
}

BegunRequest FastRequest::take() {
  if (upstream_.connection) upstream_.connection->release();
  if (upstream_.connection) upstream_.connection->set_writes({});
  return {std::exchange(upstream_, {}),
          std::exchange(ticket_, std::nullopt),
          method_,
          std::exchange(claim_, std::nullopt),
          std::exchange(outgoing_, {}),
          highest_,
          begun_at_};
}

void FastRequest::release() noexcept {
  if (auto& connection = upstream_.connection) {
    connection->release();
    connection->set_writes({});
    if (is_over_) {
      connection->clear_deadline();
      connection->buffer().consume(connection->buffer().size());
      keep(std::move(connection));
    } else {
      connection->transport().reset();
    }
  }
  upstream_ = {};
  if (ticket_ && is_write()) (void)shared_.lanes.leave(*ticket_, Ending::unknown, [](const LeftEvent&) {});
  if (ticket_ && !is_write()) shared_.lanes.end_read(*ticket_);
  ticket_.reset();
  claim_.reset();
  if (is_linked()) unlink();
  is_sent_ = is_given_back_ = is_over_ = false;
  if (outgoing_.capacity() > kept_outgoing_bytes_max) std::string{}.swap(outgoing_);
  std::unique_ptr<FastRequest> self{this};
  if (shared_.spare.size() >= spare_max) return;
  try {
    shared_.spare.push_back(std::move(self));
  } catch (...) {
    // Out of memory: it is freed instead.
  }
}

void FastRequest::keep(std::unique_ptr<UpstreamConnection> connection) noexcept {
  try {
    shared_.pool.keep(std::move(connection), idle_max_);
  } catch (...) {
    // Out of memory: it is closed instead.
  }
}

}  // namespace fenceguard::proxy
