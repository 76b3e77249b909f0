#include "server/proxy/proxied_request.hpp"

#include <algorithm>
#include <exception>

#include "server/data/problem.hpp"
#include "server/data/resource_path.hpp"
#include "server/proxy/responses.hpp"
#include "server/proxy/write_ending.hpp"

namespace fenceguard::proxy {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// An answer to a write is held whole up to this size, so that its verdict goes out once its end is known.
constexpr std::size_t held_write_answer_bytes_max = 1024 * 1024;

std::string_view what_came_of(UpstreamOutcome seen) noexcept {
  switch (seen) {
    case UpstreamOutcome::unsent:
      return "The storage cannot be reached.";
    case UpstreamOutcome::late:
      return "The storage did not answer in time.";
    case UpstreamOutcome::silent:
      return "The storage closed the connection without an answer.";
    case UpstreamOutcome::cut_off:
      return "The body did not come to its end while it was being passed on.";
    case UpstreamOutcome::broken:
      return "The storage's answer is incomplete or malformed.";
    case UpstreamOutcome::whole:
    case UpstreamOutcome::begun:
      break;
  }
  return "The storage's answer does not say whether the write took effect.";
}

}  // namespace

void ProxiedRequest::adopt(BegunRequest begun) {
  upstream_request_.adopt(std::move(begun.upstream));
  const bool is_write = begun.method.kind != Method::Kind::read;
  has_entered_ = begun.ticket.has_value();
  has_entered_write_ = has_entered_ && is_write;
  if (has_entered_) permit_.adopt(*begun.ticket, is_write, stream_.loop());
  if (has_entered_) ruling_ = {Verdict::admitted, begun.highest, std::nullopt};
  begun_ = begun.begun_at;
  head_ = std::move(begun.composed);
  is_composed_ = true;
  // A plain path is its own encoding.
  const std::string_view named = stream_.request().target;
  const auto path = named.substr(0, named.find('?'));
  auto resource = begun.claim ? begun.claim->resource
                              : Resource::parse(fenced_part(path.substr(1), context_.resource_depth)).value();
  operation_ =
      Operation{.method = begun.method,
                .target = {std::move(resource), std::string{path}, std::string{named.substr(path.size())}},
                .is_alone = context_.resource_depth == 0 && begun.method.reaches_members};
  if (begun.claim) operation_->claims.push_back(std::move(*begun.claim));
}

net::Task<void> ProxiedRequest::run() {
  std::exception_ptr thrown;
  try {
    co_await serve();
  } catch (...) {
    thrown = std::current_exception();
  }
  if (!thrown) co_return;
  if (!has_entered_write_ || is_answered_ || !operation_) std::rethrow_exception(thrown);
  // What was thrown at may have been sent.
  upstream_request_.reset();
  const bool has_left = !permit_.is_inside() || permit_.leave(Ending::unknown);
  if (!has_left) co_await permit_.wait_left();
  constexpr std::string_view why = "The guard failed while it passed the write on.";
  note_fault(FaultKind::unknown, why);
  note_quarantine();
  auto answer = outcome_unknown(500, why, own_claim(), ruling_);
  co_await stream_.respond(std::move(answer));
}

net::Task<void> ProxiedRequest::serve() {
  // g++ 12 goes wrong where a co_await stands within another expression, or is given a temporary by value:
  // each stands in a statement of its own here.
  bool is_done = false;
  if (!operation_) is_done = co_await reject();
  if (is_done) co_return;
  if (stream_.has_body() && !stream_.take_whole_body(body_)) {
    is_done = co_await read_small_body();
    if (is_done) co_return;
  }
  if (!is_composed_) begun_ = steady_clock::now();
  if (is_fenced() && !has_entered_) {
    is_done = co_await enter();
    if (is_done) co_return;
  }
  if (operation_->is_write()) {
    co_await write();
  } else {
    co_await read();
  }
}

net::Task<bool> ProxiedRequest::reject() {
  auto parsed = parse_operation(stream_.request(), {context_.resource_depth, context_.keys});
  if (auto* operation = std::get_if<Operation>(&parsed)) {
    operation_ = std::move(*operation);
    co_return false;
  }
  auto& rejection = std::get<Rejection>(parsed);
  if (rejection.why == Rejection::Why::missing) {
    context_.metrics.count_missing();
    context_.log.missing("write", *rejection.resource, requester());
  }
  if (rejection.why == Rejection::Why::not_signed) {
    context_.metrics.count_unsigned();
    context_.log.not_signed("request", *rejection.claim, requester());
  }
  co_await stream_.respond(std::move(rejection.response));
  co_return true;
}

// What is small is read before the lane is entered, so that a slow client holds no lane; of the rest, the
// first part, but for a client that waits to be told to send.
net::Task<bool> ProxiedRequest::read_small_body() {
  const auto announced = stream_.body_bytes();
  is_whole_ = false;
  if (announced.value_or(0) > UpstreamRequest::piece_bytes_max && stream_.expects_continue()) co_return false;
  while (body_.size() < UpstreamRequest::piece_bytes_max) {
    const auto piece = co_await stream_.read_body(body_, UpstreamRequest::piece_bytes_max - body_.size());
    if (piece == http::Piece::some) continue;
    is_whole_ = piece == http::Piece::end;
    if (is_whole_) co_return false;
    if (piece != http::Piece::gone) {
      auto refused = stream_.refused();
      co_await stream_.respond(std::move(refused));
    }
    co_return true;
  }
  co_return false;
}

net::Task<bool> ProxiedRequest::enter() {
  const auto kind = operation_->is_write() ? Kind::write : Kind::read;
  auto entry = permit_.enter(kind, operation_->claims, stream_.loop());
  if (!entry) {
    entry = co_await permit_.wait_entered(stream_);
    if (!entry) {
      co_await stream_.respond(
          upstream_unavailable(503, "The client went away while it waited.", resource()));
      co_return true;
    }
  }
  if (const auto* entered = std::get_if<EnteredEvent>(&*entry)) {
    note_entered(*entered);
    co_return false;
  }
  auto response = not_entered(*entry);
  co_await stream_.respond(std::move(response));
  co_return true;
}

void ProxiedRequest::note_entered(const EnteredEvent& entered) {
  has_entered_write_ = operation_->is_write();
  ruling_ = entered.rulings.at(operation_->own);
}

http::Response ProxiedRequest::not_entered(const Entry& entry) {
  if (const auto* failed = std::get_if<FailedEvent>(&entry)) {
    note_fault(failed->fault.kind, failed->fault.message);
    return fault_response(failed->fault, &resource());
  }
  const auto& refused = std::get<RefusedEvent>(entry);
  const auto& claim = operation_->claims.at(refused.claim);
  context_.metrics.count(refused.ruling.verdict);
  context_.log.ruled(operation_->is_write() ? "write" : "read", claim, refused.ruling, requester());
  return turned_down(claim, refused.ruling);
}

bool ProxiedRequest::is_overtaken() const {
  const auto& claims = operation_->claims;
  return std::any_of(claims.begin(), claims.end(),
                     [this](const Claim& claim) { return lanes_.is_overtaken(claim.resource, claim.token); });
}

OutgoingRequest ProxiedRequest::compose() {
  BodyFraming framing{!body_.empty() || !is_whole_, body_.size()};
  if (!is_whole_) framing.bytes = stream_.body_bytes();
  const bool is_chunked = framing.has_body && !framing.bytes;
  const bool is_copied = is_composed_ || (is_whole_ && body_.size() <= net::Transport::copied_bytes_max);
  if (!is_composed_) write_head(framing, is_copied);
  std::function<bool()> overtaken;
  if (operation_->is_write() && !is_whole_) overtaken = [this] { return is_overtaken(); };
  return {.head = head_,
          .body = is_copied ? std::string_view{} : body_,
          .rest = is_whole_ ? nullptr : &stream_,
          .is_overtaken = std::move(overtaken),
          .body_max = context_.limits.body_max,
          .held_bytes_max =
              operation_->is_write() ? held_write_answer_bytes_max : UpstreamRequest::piece_bytes_max,
          .is_chunked = is_chunked,
          .answers_head = operation_->method.name == "HEAD",
          .is_write = operation_->is_write(),
          .claims =
              operation_->is_write() ? std::span<const Claim>{operation_->claims} : std::span<const Claim>{},
          .is_last = asks_to_close(operation_->method, framing),
          .may_repeat = is_whole_ && !operation_->is_write(),
          .drops_cache_rules = is_fenced() && !operation_->is_write()};
}

void ProxiedRequest::write_head(const BodyFraming& framing, bool is_body_copied) {
  head_.reserve(1024);
  write_request_head(head_, *operation_, stream_.request().fields, {stream_.peer(), stream_.is_tls()},
                     pool_.options().origin, framing);
  const bool is_chunked = framing.has_body && !framing.bytes;
  if (is_chunked && !body_.empty()) write_chunk_line(head_, body_.size(), true);
  if (is_body_copied) head_.append(body_);
}

net::Task<void> ProxiedRequest::write() {
  const auto outgoing = compose();
  auto seen = co_await upstream_request_.run(outgoing);
  const bool is_streamed =
      seen == UpstreamOutcome::begun && ending_of(UpstreamOutcome::whole) != Ending::unknown;
  if (is_streamed) {
    // Without a verdict: it goes out before the end is known that would make it 'admitted'.
    upstream_request_.answer().fields.add("Fencing-Highest", std::to_string(ruling_.highest));
    is_answered_ = true;
    seen = co_await relay();
    stream_.limit_write(context_.limits.write_max);
  }
  observe();
  const auto ending = ending_of(seen);
  if (ending == Ending::unknown) upstream_request_.reset();
  const bool has_left = permit_.leave(ending);
  if (!has_left) co_await permit_.wait_left();
  auto answer = write_answer(seen, ending);
  if (ending == Ending::unknown || permit_.fault()) note_quarantine();
  context_.metrics.observe_write(steady_clock::now() - begun_);
  is_answered_ = true;
  if (!is_streamed) {
    co_await stream_.respond(std::move(answer));
  } else if (seen == UpstreamOutcome::whole && !permit_.fault()) {
    co_await finish_streamed(answer.body);
  }
}

Ending ProxiedRequest::ending_of(UpstreamOutcome seen) {
  if (seen == UpstreamOutcome::unsent) return Ending::unsent;
  if (seen != UpstreamOutcome::whole) return Ending::unknown;
  const auto& claims = operation_->claims;
  const bool has_sequence = std::any_of(claims.begin(), claims.end(),
                                        [](const Claim& claim) { return claim.sequence.has_value(); });
  return ending_of_answer(upstream_request_.answer().status, has_sequence, upstream_request_.is_early());
}

http::Response ProxiedRequest::write_answer(UpstreamOutcome seen, Ending ending) {
  if (ending == Ending::unsent) {
    note_fault(FaultKind::unavailable, what_came_of(seen));
    return upstream_unavailable(503, what_came_of(seen), resource());
  }
  if (ending == Ending::unknown) {
    const auto status = upstream_request_.answer().status;
    const bool is_timeout =
        seen == UpstreamOutcome::late ||
        (seen == UpstreamOutcome::whole && (status == 408 || status == 504)) ||
        (seen == UpstreamOutcome::cut_off && upstream_request_.body_end() == http::Piece::late);
    note_fault(FaultKind::unknown, what_came_of(seen));
    return outcome_unknown(is_timeout ? 504 : 502, what_came_of(seen), own_claim(), ruling_);
  }
  if (permit_.fault()) {
    note_fault(FaultKind::unknown, permit_.fault()->message);
    return outcome_unknown(500, permit_.fault()->message, own_claim(), ruling_);
  }
  context_.metrics.count(Verdict::admitted);
  context_.log.ruled("write", own_claim(), ruling_, requester());
  auto& answer = upstream_request_.answer();
  add_ruling(answer, ruling_);
  return std::exchange(answer, {});
}

net::Task<void> ProxiedRequest::read() {
  const auto outgoing = compose();
  auto seen = co_await upstream_request_.run(outgoing);
  observe();
  if (seen != UpstreamOutcome::whole && seen != UpstreamOutcome::begun) {
    auto response = unanswered_read(seen);
    co_await stream_.respond(std::move(response));
    co_return;
  }
  if (!is_fence_unchanged()) {
    upstream_request_.reset();
    note_read();
    auto response = turned_down(own_claim(), ruling_);
    co_await stream_.respond(std::move(response));
    co_return;
  }
  auto& answer = upstream_request_.answer();
  if (is_fenced()) add_ruling(answer, ruling_);
  add_cache_rules(answer, is_fenced());
  const bool is_head = operation_->method.name == "HEAD";
  if (seen == UpstreamOutcome::whole && (!is_head || upstream_request_.body_bytes())) {
    if (is_head) answer.head_length = upstream_request_.body_bytes();
    note_read();
    co_await stream_.respond(std::move(answer));
    co_return;
  }
  if (seen == UpstreamOutcome::begun) {
    seen = co_await relay();
  } else {
    const bool is_begun = co_await stream_.begin(std::move(answer), std::nullopt);
    answer.body.clear();
    is_client_gone_ = !is_begun;
  }
  const bool is_finished = seen == UpstreamOutcome::whole && is_fence_unchanged();
  note_read();
  if (is_finished) co_await finish_streamed(answer.body);
}

// A newer token's write does not wait for reads, which change nothing: a holder that was stopped must not
// keep the next one out by reading slowly. So what came of the upstream is judged before each part of it goes
// on.
bool ProxiedRequest::is_fence_unchanged() {
  if (!is_fenced() || operation_->is_write()) return true;
  auto now = permit_.judge_read();
  if (now.verdict == Verdict::admitted) return true;
  ruling_ = std::move(now);
  return false;
}

void ProxiedRequest::note_read() {
  if (!is_fenced()) return;
  context_.metrics.count(ruling_.verdict);
  context_.log.ruled("read", own_claim(), ruling_, requester());
}

net::Task<UpstreamOutcome> ProxiedRequest::relay() {
  auto& answer = upstream_request_.answer();
  auto body = std::exchange(answer.body, {});
  const bool is_write = operation_->is_write();
  const nanoseconds timeout = pool_.options().upstream_timeout;
  // Of a write the upstream has one time-out in all, and its client, which holds the lane, not much more.
  auto upstream_left = timeout - (steady_clock::now() - upstream_request_.sent_at());
  auto client_left = timeout;
  const bool is_begun = co_await stream_.begin(std::move(answer), upstream_request_.body_bytes());
  is_client_gone_ = !is_begun;
  for (;;) {
    if (!is_fence_unchanged()) {
      upstream_request_.reset();
      co_return UpstreamOutcome::cut_off;
    }
    if (!is_client_gone_) {
      if (is_write) stream_.limit_write(duration_cast<milliseconds>(std::min(timeout / 4, client_left)));
      const auto begun = steady_clock::now();
      const bool is_taken = co_await stream_.write(body);
      client_left = std::max(nanoseconds{0}, client_left - (steady_clock::now() - begun));
      is_client_gone_ = !is_taken;
    }
    // Of a write the end of the answer is awaited in any case.
    if (is_client_gone_ && !is_write) co_return UpstreamOutcome::cut_off;
    answer.body.swap(body);
    answer.body.clear();
    const auto begun = steady_clock::now();
    const auto seen = co_await upstream_request_.read_on(begun + (is_write ? upstream_left : timeout));
    upstream_left -= steady_clock::now() - begun;
    if (seen != UpstreamOutcome::begun) co_return seen;
    answer.body.swap(body);
  }
}

net::Task<void> ProxiedRequest::finish_streamed(std::string_view rest) {
  if (is_client_gone_) co_return;
  const bool is_taken = co_await stream_.write(rest);
  if (is_taken) co_await stream_.finish();
}

http::Response ProxiedRequest::unanswered_read(UpstreamOutcome seen) {
  const unsigned status = seen == UpstreamOutcome::unsent ? 503 : seen == UpstreamOutcome::late ? 504 : 502;
  note_fault(FaultKind::unavailable, what_came_of(seen));
  return upstream_unavailable(status, what_came_of(seen), resource());
}

void ProxiedRequest::note_fault(FaultKind kind, std::string_view why) {
  context_.metrics.count(kind);
  const char* const what = operation_->is_write() ? "write" : "read";
  const Fault fault{kind, std::string{why}};
  if (!is_fenced()) return context_.log.failed(what, resource(), fault, requester());
  context_.log.failed(what, own_claim(), fault, requester());
}

void ProxiedRequest::note_quarantine() {
  for (const Claim& claim : operation_->claims) {
    const auto why = lanes_.quarantine(claim.resource.name());
    if (why) context_.log.quarantined(claim.resource.name(), *why);
  }
}

void ProxiedRequest::observe() {
  if (upstream_request_.sent_at() == net::SteadyTime{}) return;
  context_.metrics.observe_upstream(steady_clock::now() - upstream_request_.sent_at());
}

}  // namespace fenceguard::proxy
