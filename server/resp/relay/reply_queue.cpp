#include "server/resp/relay/reply_queue.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr int repeats_max = 8;
constexpr int first_pause_ms = 2;  // doubled with each attempt

// By which a server says that it ran nothing, and may do so elsewhere or later.
bool is_not_run(std::string_view reply) {
  return reply.starts_with("-NOSCRIPT") || reply.starts_with("-MOVED ") || reply.starts_with("-ASK ") ||
         reply.starts_with("-TRYAGAIN");
}

std::string_view error_of(std::string_view reply) {
  return reply.substr(1, reply.size() - 3);
}

}  // namespace

void ReplyQueue::answer(std::string_view bytes) {
  if (owed_.empty()) return port_.answer(bytes);
  if (owed_.back().kind != PendingReply::Kind::local) owed_.emplace_back().state = PendingReply::State::known;
  auto& last = owed_.back();
  last.text.append(bytes);
  last.bytes += bytes.size();
  bytes_ += bytes.size();
}

void ReplyQueue::send(PendingReply reply, std::string_view request) {
  auto& owed = owed_.emplace_back(std::move(reply));
  owed.bytes = request.size() + owed.call.rest.size();
  bytes_ += owed.bytes;
  if (owed.kind == PendingReply::Kind::passed) {
    if (port_.is_cluster()) owed.text = request;
    owed.is_plain_read ? port_.send_read(owed.slot, request)
                       : port_.send(Channel::shared, owed.slot, request, 1, false);
  } else {
    port_.send(Channel::shared, owed.slot, owed.call, false);
  }
}

PendingReply* ReplyQueue::awaited() noexcept {
  const auto found = std::ranges::find(owed_, PendingReply::State::awaited,
                                       [](const PendingReply& reply) { return reply.state; });
  return found == owed_.end() ? nullptr : &*found;
}

bool ReplyQueue::awaits_judged_write() const noexcept {
  return std::ranges::any_of(owed_, &PendingReply::is_awaited_write);
}

std::vector<HeldClaimPtr> ReplyQueue::awaited_claims() const {
  std::vector<HeldClaimPtr> claims;
  for (const auto& reply : owed_) {
    if (reply.is_awaited_write()) claims.push_back(reply.run.claim());
    if (reply.claim) claims.push_back(reply.claim);
  }
  return claims;
}

void ReplyQueue::settle(PendingReply& reply, std::string_view bytes) {
  bytes_ -= reply.bytes;
  if (&reply == &owed_.front()) {
    port_.answer(bytes);
    owed_.pop_front();
    release_known();
  } else {
    reply.text = bytes;
    reply.bytes = bytes.size();
    bytes_ += reply.bytes;
    reply.state = PendingReply::State::known;
    free_memory(reply.call.rest);
  }
}

void ReplyQueue::release_known() {
  while (!owed_.empty() && owed_.front().state == PendingReply::State::known) {
    port_.answer(owed_.front().text);
    bytes_ -= owed_.front().bytes;
    owed_.pop_front();
  }
}

void ReplyQueue::replied(std::string_view bytes) {
  auto* reply = awaited();
  if (reply == nullptr) return;
  is_repeat_awaited_ = false;
  reply_bytes_ = std::max(bytes.size(), reply_bytes_ - reply_bytes_ / 16);
  const bool may_repeat = reply->kind != PendingReply::Kind::passed || !reply->text.empty();
  if (may_repeat && is_not_run(bytes)) {
    end_not_run(*reply, bytes);
  } else {
    reply->has_run = true;
    switch (reply->kind) {
      case PendingReply::Kind::run:
        end_run(*reply, bytes);
        break;
      case PendingReply::Kind::advance:
        end_advance(*reply, bytes);
        break;
      case PendingReply::Kind::show:
        end_show(*reply, bytes);
        break;
      default:
        settle(*reply, bytes);
    }
  }
  if (not_run_ > 0) repeat();
}

void ReplyQueue::lost(bool was_sent, std::string_view why) {
  auto* reply = awaited();
  if (reply == nullptr) return;
  is_repeat_awaited_ = false;
  // It may have been done: what stands before it must not be done after it.
  reply->has_run = was_sent;
  const bool is_unknown = was_sent && reply->writes;
  end_fault(*reply, {is_unknown ? FaultKind::unknown : FaultKind::unavailable, std::string{why}});
  if (not_run_ > 0) repeat();
}

void ReplyQueue::end_fault(PendingReply& reply, const Fault& fault) {
  std::string text;
  std::size_t count = 1;
  BatchResult result;
  result.fault = fault;
  if (reply.kind == PendingReply::Kind::run) {
    count = reply.run.count();
    if (reply.run.claim()) tell("write", reply.run.claim()->claim, result, count);
  } else if (reply.kind == PendingReply::Kind::advance) {
    advanced_(reply.claim, result);
    tell("advance", reply.claim->claim, result, 1);
  }
  for (std::size_t i = 0; i < count; ++i) add_error(text, fault_text(fault));
  settle(reply, text);
}

void ReplyQueue::tell(const char* operation, const Claim& claim, const BatchResult& result,
                      std::size_t count) {
  if (result.kind == BatchResult::Kind::ruled) {
    observer_.ruled(operation, claim, result.verdict, result.highest, count);
    if (result.has_raised) observer_.raised(claim);
  } else {
    observer_.failed(operation, claim, result.fault, count);
  }
}

void ReplyQueue::end_run(PendingReply& reply, std::string_view bytes) {
  std::string text;
  const auto result = reply.run.end(bytes, text);
  const auto& held = reply.run.claim();
  if (result.kind == BatchResult::Kind::fault) return end_fault(reply, result.fault);
  if (!held && result.kind == BatchResult::Kind::error) {
    if (const auto refused = unfenced_refusal(error_of(bytes))) observer_.missing(*refused);
  }
  if (held && result.kind == BatchResult::Kind::ruled) {
    if (result.verdict == Verdict::stale || result.verdict == Verdict::conflict) {
      held->refusal = result.verdict;
      held->highest = result.highest;
    }
    tell("write", held->claim, result, reply.run.count());
  }
  settle(reply, text);
}

void ReplyQueue::end_advance(PendingReply& reply, std::string_view bytes) {
  const auto result = advance_result(reply.claim->claim, bytes);
  if (result.kind == BatchResult::Kind::fault) return end_fault(reply, result.fault);
  const auto claim = reply.claim;
  advanced_(claim, result);
  if (result.kind != BatchResult::Kind::ruled) return settle(reply, bytes);
  tell("advance", claim->claim, result, 1);
  if (result.verdict == Verdict::admitted) return settle(reply, ok_reply);
  std::string text;
  add_error(text, refusal_text(claim->claim, result.verdict, result.highest));
  settle(reply, text);
}

// Of {floor, token, holder, sequence, closed}: token, sequence and closed. Of {floor} alone: there is none.
void ReplyQueue::end_show(PendingReply& reply, std::string_view bytes) {
  auto rest = bytes;
  const auto whole = take_value(rest);
  std::string text;
  if (!whole || whole->is_error()) {
    const auto result = result_of_error(reply.claim->claim.resource.name(), whole ? whole->text : "");
    return result.kind == BatchResult::Kind::fault ? end_fault(reply, result.fault) : settle(reply, bytes);
  }
  if (whole->elements < 5) return settle(reply, nil_array);
  rest = whole->inside;
  (void)take_value(rest);
  const auto token = take_value(rest);
  (void)take_value(rest);
  add_array(text, 3);
  if (token) text.append(token->bytes).append(rest);
  settle(reply, text);
}

void ReplyQueue::end_not_run(PendingReply& reply, std::string_view bytes) {
  if (++reply.attempts >= repeats_max)
    return end_fault(reply,
                     {FaultKind::unavailable, "Redis did not run it however often it was sent; try again"});
  reply.state = PendingReply::State::not_run;
  ++not_run_;
  is_asleep_ = false;
  if (bytes.starts_with("-MOVED ") || bytes.starts_with("-ASK ")) port_.redirect(reply.slot, error_of(bytes));
  if (bytes.starts_with("-TRYAGAIN") || reply.attempts > 2) {
    is_asleep_ = true;
    port_.sleep(first_pause_ms << reply.attempts);
  }
}

void ReplyQueue::woken() {
  is_asleep_ = false;
  if (not_run_ > 0) repeat();
}

// Once all that was sent is answered: the oldest alone, the others behind it. One that a later request has
// overtaken would undo what that one did.
void ReplyQueue::repeat() {
  if (is_asleep_ || awaited() != nullptr) return;
  for (std::size_t i = 0; i < owed_.size(); ++i) {
    if (owed_[i].state != PendingReply::State::not_run) continue;
    --not_run_;
    owed_[i].state = PendingReply::State::awaited;
    const bool is_overtaken = std::any_of(
        owed_.begin() + static_cast<std::ptrdiff_t>(i), owed_.end(), [&](const PendingReply& later) {
          return later.has_run && (!port_.is_cluster() || later.slot == owed_[i].slot || later.slot < 0);
        });
    if (!is_overtaken) return send_again(owed_[i]);
    port_.redirect(owed_[i].slot, {});  // an ASK that was meant for it is not for what follows
    return lost(false, "Redis did not run it, and what was sent after it has been done; nothing was written");
  }
}

void ReplyQueue::send_again(PendingReply& reply) {
  is_repeat_awaited_ = true;
  if (reply.kind == PendingReply::Kind::passed) {
    port_.send(Channel::shared, reply.slot, reply.text, 1, false);
  } else {
    port_.send(Channel::shared, reply.slot, reply.call, true);
  }
}

}  // namespace fenceguard::resp
