#include "server/resp/replies/watched_transaction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/resp/replies/own_command.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr int attempts_max = 5;
constexpr int moves_max = 6;

bool is_redirection(std::string_view error) {
  return error.starts_with("MOVED ") || error.starts_with("ASK ") || error.starts_with("TRYAGAIN");
}

}  // namespace

std::size_t WatchedTransaction::send(bool /*again*/) {
  begin();
  return work_.commands.size();
}

void WatchedTransaction::begin() {
  context_.redis.prepare(channel_, slot_, connection_.is_watching());
  attempts_ = 0;
  has_forgotten_ = false;
  judge();
}

void WatchedTransaction::send_bytes(std::string_view bytes, std::size_t replies) {
  context_.redis.send(channel_, slot_, bytes, replies, false);
}

void WatchedTransaction::judge() {
  ++attempts_;
  stage_ = Stage::judging;
  seen_ = 0;
  is_refused_ = is_queueing_ = false;
  result_ = {};
  const auto& keys = context_.options.keys;
  const bool is_cluster = context_.redis.is_cluster();
  if (!work_.claims.empty() || !work_.unclaimed.empty()) {
    std::string watch;
    add_array(watch, 1 + work_.claims.size() + work_.unclaimed.size() + (is_cluster ? 0 : 1));
    add_bulk(watch, "WATCH");
    for (const auto& claim : work_.claims) add_bulk(watch, keys.fence(claim->claim.resource));
    for (const auto& resource : work_.unclaimed) add_bulk(watch, keys.fence(Resource{resource}));
    if (!is_cluster) add_bulk(watch, keys.floor());
    send_bytes(watch, 1);
    for (const auto& claim : work_.claims)
      context_.redis.send(channel_, slot_,
                          advance_call(claim->claim, keys, is_cluster, context_.options.jump_max),
                          has_forgotten_);
    if (!work_.unclaimed.empty())
      context_.redis.send(channel_, slot_, no_fence_call(work_.unclaimed, keys, is_cluster), has_forgotten_);
  }
  std::string multi;
  add_command(multi, {"MULTI"});
  send_bytes(multi, 1);
}

bool WatchedTransaction::begin_refusal(Result::Kind kind, std::string_view error) {
  if (std::exchange(is_refused_, true)) return false;
  result_.kind = kind;
  answer_.clear();
  add_error(answer_, error);
  return true;
}

void WatchedTransaction::refuse(Fault fault) {
  if (begin_refusal(Result::Kind::fault, fault_text(fault))) result_.fault = std::move(fault);
}

void WatchedTransaction::refuse_with(std::string_view error) {
  if (!begin_refusal(Result::Kind::fault, error)) return;
  result_.is_moved = is_redirection(error);
  result_.fault = {FaultKind::unavailable, std::string{error}};
}

void WatchedTransaction::take_verdict(const HeldClaimPtr& claim, std::string_view reply) {
  const auto result = advance_result(claim->claim, reply);
  switch (result.kind) {
    case BatchResult::Kind::ruled:
      if (result.has_raised) context_.observer.raised(claim->claim);
      if (result.verdict == Verdict::admitted || is_refused_) return;
      claim->refuse(result.verdict, result.highest);
      (void)begin_refusal(Result::Kind::refused, refusal_text(claim->claim, result.verdict, result.highest));
      result_.refusal = claim;
      return;
    case BatchResult::Kind::fault:
      return refuse(result.fault);
    case BatchResult::Kind::error:
    case BatchResult::Kind::not_run:
      return take_error(reply);
  }
}

void WatchedTransaction::take_error(std::string_view reply) {
  if (reply.starts_with("-NOSCRIPT") && !has_forgotten_) {
    has_forgotten_ = true;
    // Once more, with the text; for a client that watches, whose watch ends with this, it is no answer.
    return refuse({FaultKind::unavailable, "Redis forgot the guard's script; try again"});
  }
  refuse_with(error_of(reply));
}

void WatchedTransaction::take_absence(std::string_view reply) {
  if (reply == ok_reply) return;
  if (!reply.starts_with('-'))
    return refuse({FaultKind::unavailable, "Redis answered with what is no ruling"});
  const auto resource = unfenced_refusal(error_of(reply));
  if (!resource) return take_error(reply);
  if (begin_refusal(Result::Kind::refused, unclaimed_text(*resource))) result_.missing = *resource;
}

PendingReply::Answer WatchedTransaction::replied(std::string_view reply) {
  switch (stage_) {
    case Stage::judging:
      take_judgement(reply);
      return std::nullopt;
    case Stage::applying:
      return take_applied(reply);
    case Stage::undoing:
      return take_undone();
    case Stage::moved:
      break;
  }
  return std::nullopt;
}

void WatchedTransaction::take_judgement(std::string_view reply) {
  const auto claims = work_.claims.size();
  const auto at = seen_++;
  const auto judged = claims + (work_.unclaimed.empty() ? 0 : 1);
  const auto multi_at = judged == 0 ? 0 : judged + 1;
  if (at == multi_at) {
    is_queueing_ = !reply.starts_with('-');
    if (!is_queueing_) refuse_with(error_of(reply));
    end_judging();
  } else if (at == 0) {
    if (reply.starts_with('-')) refuse_with(error_of(reply));
  } else if (at <= claims) {
    take_verdict(work_.claims[at - 1], reply);
  } else {
    take_absence(reply);
  }
}

void WatchedTransaction::end_judging() {
  if (!is_refused_) {
    stage_ = Stage::applying;
    seen_ = 0;
    const auto size = work_.commands.size();
    add_command(work_.commands, {"EXEC"});
    send_bytes(work_.commands, work_.count + 1);
    work_.commands.resize(size);
    return;
  }
  // Nothing was queued; what was watched is let go, the client's own watches with it, as EXEC does.
  stage_ = Stage::undoing;
  std::string undo;
  add_command(undo, {is_queueing_ ? "DISCARD" : "UNWATCH"});
  send_bytes(undo, 1);
}

PendingReply::Answer WatchedTransaction::take_undone() {
  const bool may_repeat = has_forgotten_ && attempts_ == 1 && !work_.is_watching;
  if (!may_repeat || result_.kind != Result::Kind::fault || result_.is_moved) return end(answer_);
  judge();
  return std::nullopt;
}

PendingReply::Answer WatchedTransaction::take_applied(std::string_view reply) {
  if (seen_++ < work_.count) {
    // What Redis does not queue makes EXEC fail.
    if (reply.starts_with('-')) refuse_with(error_of(reply));
    return std::nullopt;
  }
  if (reply.starts_with('-')) {
    // By it Redis has done nothing. A slot that was moved meanwhile is told here, and not for each command.
    std::string error{error_of(reply)};
    const bool is_of_all = !work_.is_single && !result_.is_moved;
    // Redis told a command why, and the client was told QUEUED.
    if (is_of_all && is_refused_ && error.starts_with("EXECABORT"))
      error = fmt::format("EXECABORT Transaction discarded because of: {}", result_.fault.message);
    if (is_redirection(error) || is_of_all) is_refused_ = false;
    refuse_with(error);
    return end(answer_);
  }
  if (reply == nil_array && !work_.is_watching) {
    if (attempts_ < attempts_max) {
      judge();
      return std::nullopt;
    }
    is_refused_ = false;
    refuse(
        {FaultKind::unavailable, "a fence changed each time it was tried; nothing was written, try again"});
    return end(answer_);
  }
  auto bytes = reply;
  const auto all = take_value(bytes);
  if (!all || (reply != nil_array && (all->kind != '*' || all->elements != work_.count))) {
    is_refused_ = false;
    refuse({FaultKind::unknown, "Redis answered EXEC with what is no answer to it"});
    return end(answer_);
  }
  result_ = {.kind = Result::Kind::replies};
  return end(work_.is_single ? all->inside : reply);
}

PendingReply::Answer WatchedTransaction::lost(bool was_sent, std::string_view why) {
  if (stage_ == Stage::moved) return std::nullopt;
  const bool is_unknown = stage_ == Stage::applying && was_sent && work_.writes;
  is_refused_ = false;
  refuse(is_unknown ? Fault{FaultKind::unknown,
                            fmt::format("the transaction was sent, and its end not seen: {}", why)}
                    : Fault{FaultKind::unavailable, std::string{why}});
  // The answer says so, and not the next EXEC.
  if (channel_ == Channel::own) (void)connection_.take_lost_watch();
  return end(answer_);
}

void WatchedTransaction::woken() {
  if (stage_ == Stage::moved) begin();
}

PendingReply::Answer WatchedTransaction::end(std::string_view answer) {
  if (result_.is_moved && !work_.is_watching && ++moves_ < moves_max) {
    if (result_.fault.message.starts_with("MOVED ")) context_.redis.redirect(slot_, result_.fault.message);
    stage_ = Stage::moved;
    context_.redis.sleep(1 << moves_);
    return std::nullopt;
  }
  if (channel_ == Channel::own) connection_.end_watch();
  report();
  // A script can answer with what it likes.
  if (!result_.is_moved && !leads_elsewhere(answer)) return answer;
  answer_.clear();
  add_error(answer_, keys_move);
  return answer_;
}

void WatchedTransaction::report() const {
  auto& observer = context_.observer;
  const auto count = std::max<std::size_t>(1, work_.count);
  for (const auto& held : work_.claims) {
    if (result_.kind == Result::Kind::fault) {
      observer.failed("write", held->claim, result_.fault, count);
    } else if (result_.kind == Result::Kind::replies) {
      observer.ruled("write", held->claim, Verdict::admitted, held->claim.token.value(), count);
    }
  }
  if (const auto& held = result_.refusal)
    observer.ruled("write", held->claim, *held->refusal, held->highest, count);
  if (!result_.missing.empty()) observer.missing(result_.missing);
}

}  // namespace fenceguard::resp
