#include "server/resp/relay/owed_replies.hpp"

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

void OwedReplies::answer(std::string_view bytes) {
  if (owed_.empty()) return port_.answer(bytes);
  if (owed_.back().kind != OwedReply::Kind::local) owed_.emplace_back().state = OwedReply::State::known;
  auto& last = owed_.back();
  last.text.append(bytes);
  last.bytes += bytes.size();
  bytes_ += bytes.size();
}

void OwedReplies::send(OwedReply reply, std::string_view request) {
  auto& owed = owed_.emplace_back(std::move(reply));
  owed.bytes = request.size() + owed.call.rest.size();
  bytes_ += owed.bytes;
  if (owed.kind == OwedReply::Kind::passed) {
    if (port_.is_cluster()) owed.text = request;
    owed.is_plain_read ? port_.send_read(owed.slot, request)
                       : port_.send(Channel::shared, owed.slot, request, 1, false);
  } else {
    port_.send(Channel::shared, owed.slot, owed.call, false);
  }
}

OwedReply* OwedReplies::awaited() noexcept {
  const auto found =
      std::ranges::find(owed_, OwedReply::State::awaited, [](const OwedReply& reply) { return reply.state; });
  return found == owed_.end() ? nullptr : &*found;
}

bool OwedReplies::awaits_judged_write() const noexcept {
  return std::ranges::any_of(owed_, &OwedReply::is_awaited_write);
}

std::vector<HeldClaimPtr> OwedReplies::awaited_claims() const {
  std::vector<HeldClaimPtr> claims;
  for (const auto& reply : owed_) {
    if (reply.is_awaited_write()) claims.push_back(reply.run.claim());
    if (reply.claim) claims.push_back(reply.claim);
  }
  return claims;
}

void OwedReplies::settle(OwedReply& reply, std::string_view bytes) {
  bytes_ -= reply.bytes;
  if (&reply == &owed_.front()) {
    port_.answer(bytes);
    owed_.pop_front();
    release_known();
  } else {
    reply.text = bytes;
    reply.bytes = bytes.size();
    bytes_ += reply.bytes;
    reply.state = OwedReply::State::known;
    free_memory(reply.call.rest);
  }
}

void OwedReplies::release_known() {
  while (!owed_.empty() && owed_.front().state == OwedReply::State::known) {
    port_.answer(owed_.front().text);
    bytes_ -= owed_.front().bytes;
    owed_.pop_front();
  }
}

void OwedReplies::replied(std::string_view bytes) {
  auto* reply = awaited();
  if (reply == nullptr) return;
  is_repeat_awaited_ = false;
  reply_bytes_ = std::max(bytes.size(), reply_bytes_ - reply_bytes_ / 16);
  const bool may_repeat = reply->kind != OwedReply::Kind::passed || !reply->text.empty();
  if (may_repeat && is_not_run(bytes)) {
    end_not_run(*reply, bytes);
  } else {
    reply->has_run = true;
    switch (reply->kind) {
      case OwedReply::Kind::run:
        end_run(*reply, bytes);
        break;
      case OwedReply::Kind::advance:
        end_advance(*reply, bytes);
        break;
      case OwedReply::Kind::show:
        end_show(*reply, bytes);
        break;
      default:
        settle(*reply, bytes);
    }
  }
  if (not_run_ > 0) repeat();
}

void OwedReplies::lost(bool was_sent, std::string_view why) {
  auto* reply = awaited();
  if (reply == nullptr) return;
  is_repeat_awaited_ = false;
  // It may have been done: what stands before it must not be done after it.
  reply->has_run = was_sent;
  const bool is_unknown = was_sent && reply->writes;
  end_fault(*reply, {is_unknown ? FaultKind::unknown : FaultKind::unavailable, std::string{why}});
  if (not_run_ > 0) repeat();
}

void OwedReplies::end_fault(OwedReply& reply, const Fault& fault) {
  std::string text;
  std::size_t count = 1;
  RunEnding ending;
  ending.fault = fault;
  if (reply.kind == OwedReply::Kind::run) {
    count = reply.run.count();
    if (reply.run.claim()) tell("write", reply.run.claim()->claim, ending, count);
  } else if (reply.kind == OwedReply::Kind::advance) {
    advanced_(reply.claim, ending);
    tell("advance", reply.claim->claim, ending, 1);
  }
  for (std::size_t i = 0; i < count; ++i) add_error(text, fault_text(fault));
  settle(reply, text);
}

void OwedReplies::tell(const char* operation, const Claim& claim, const RunEnding& ending,
                       std::size_t count) {
  if (ending.kind == RunEnding::Kind::ruled) {
    observer_.ruled(operation, claim, ending.verdict, ending.highest, count);
    if (ending.has_raised) observer_.raised(claim);
  } else {
    observer_.failed(operation, claim, ending.fault, count);
  }
}

void OwedReplies::end_run(OwedReply& reply, std::string_view bytes) {
  std::string text;
  const auto ending = reply.run.end(bytes, text);
  const auto& held = reply.run.claim();
  if (ending.kind == RunEnding::Kind::fault) return end_fault(reply, ending.fault);
  if (!held && ending.kind == RunEnding::Kind::error) {
    if (const auto refused = unfenced_refusal(error_of(bytes))) observer_.missing(*refused);
  }
  if (held && ending.kind == RunEnding::Kind::ruled) {
    if (ending.verdict == Verdict::stale || ending.verdict == Verdict::conflict) {
      held->refusal = ending.verdict;
      held->highest = ending.highest;
    }
    tell("write", held->claim, ending, reply.run.count());
  }
  settle(reply, text);
}

void OwedReplies::end_advance(OwedReply& reply, std::string_view bytes) {
  const auto ending = advance_ending(reply.claim->claim, bytes);
  if (ending.kind == RunEnding::Kind::fault) return end_fault(reply, ending.fault);
  const auto claim = reply.claim;
  advanced_(claim, ending);
  if (ending.kind != RunEnding::Kind::ruled) return settle(reply, bytes);
  tell("advance", claim->claim, ending, 1);
  if (ending.verdict == Verdict::admitted) return settle(reply, ok_reply);
  std::string text;
  add_error(text, refusal_text(claim->claim, ending.verdict, ending.highest));
  settle(reply, text);
}

// Of {floor, token, holder, sequence, closed}: token, sequence and closed. Of {floor} alone: there is none.
void OwedReplies::end_show(OwedReply& reply, std::string_view bytes) {
  auto rest = bytes;
  const auto whole = take_value(rest);
  std::string text;
  if (!whole || whole->is_error()) {
    const auto ending = ending_of_error(reply.claim->claim.resource.name(), whole ? whole->text : "");
    return ending.kind == RunEnding::Kind::fault ? end_fault(reply, ending.fault) : settle(reply, bytes);
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

void OwedReplies::end_not_run(OwedReply& reply, std::string_view bytes) {
  if (++reply.attempts >= repeats_max)
    return end_fault(reply,
                     {FaultKind::unavailable, "Redis did not run it however often it was sent; try again"});
  reply.state = OwedReply::State::not_run;
  ++not_run_;
  is_asleep_ = false;
  if (bytes.starts_with("-MOVED ") || bytes.starts_with("-ASK ")) port_.redirect(reply.slot, error_of(bytes));
  if (bytes.starts_with("-TRYAGAIN") || reply.attempts > 2) {
    is_asleep_ = true;
    port_.sleep(first_pause_ms << reply.attempts);
  }
}

void OwedReplies::woken() {
  is_asleep_ = false;
  if (not_run_ > 0) repeat();
}

// Once all that was sent is answered: the oldest alone, the others behind it. One that a later request has
// overtaken would undo what that one did.
void OwedReplies::repeat() {
  if (is_asleep_ || awaited() != nullptr) return;
  for (std::size_t i = 0; i < owed_.size(); ++i) {
    if (owed_[i].state != OwedReply::State::not_run) continue;
    --not_run_;
    owed_[i].state = OwedReply::State::awaited;
    const bool is_overtaken =
        std::any_of(owed_.begin() + static_cast<std::ptrdiff_t>(i), owed_.end(), [&](const OwedReply& later) {
          return later.has_run && (!port_.is_cluster() || later.slot == owed_[i].slot || later.slot < 0);
        });
    if (!is_overtaken) return send_again(owed_[i]);
    port_.redirect(owed_[i].slot, {});  // an ASK that was meant for it is not for what follows
    return lost(false, "Redis did not run it, and what was sent after it has been done; nothing was written");
  }
}

void OwedReplies::send_again(OwedReply& reply) {
  is_repeat_awaited_ = true;
  if (reply.kind == OwedReply::Kind::passed) {
    port_.send(Channel::shared, reply.slot, reply.text, 1, false);
  } else {
    port_.send(Channel::shared, reply.slot, reply.call, true);
  }
}

}  // namespace fenceguard::resp
