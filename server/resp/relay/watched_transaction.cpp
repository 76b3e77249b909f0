#include "server/resp/relay/watched_transaction.hpp"

#include <fmt/format.h>

#include <utility>

#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr int attempts_max = 5;

bool is_redirection(std::string_view error) {
  return error.starts_with("MOVED ") || error.starts_with("ASK ") || error.starts_with("TRYAGAIN");
}

}  // namespace

void WatchedTransaction::begin(Work work, Channel channel, std::function<void(const Claim&)> raised) {
  work_ = std::move(work);
  channel_ = channel;
  raised_ = std::move(raised);
  attempt_ = 0;
  has_forgotten_ = false;
  judge();
}

void WatchedTransaction::judge() {
  ++attempt_;
  stage_ = Stage::judging;
  seen_ = 0;
  is_refused_ = is_queueing_ = false;
  result_ = {};
  if (!work_.claims.empty() || !work_.unclaimed.empty()) {
    std::string watch;
    const bool has_floor = !port_.is_cluster();
    add_array(watch, 1 + work_.claims.size() + work_.unclaimed.size() + (has_floor ? 1 : 0));
    add_bulk(watch, "WATCH");
    for (const auto& claim : work_.claims) add_bulk(watch, keys_.fence(claim->claim.resource));
    for (const auto& resource : work_.unclaimed) add_bulk(watch, keys_.fence(Resource{resource}));
    if (has_floor) add_bulk(watch, keys_.floor());
    port_.send(channel_, work_.slot, watch, 1, false);
    for (const auto& claim : work_.claims) {
      const auto call = advance_call(claim->claim, keys_, port_.is_cluster(), jump_max_);
      port_.send(channel_, work_.slot, call, has_forgotten_);
    }
    if (!work_.unclaimed.empty())
      port_.send(channel_, work_.slot, no_fence_call(work_.unclaimed, keys_, port_.is_cluster()),
                 has_forgotten_);
  }
  std::string multi;
  add_command(multi, {"MULTI"});
  port_.send(channel_, work_.slot, multi, 1, false);
}

void WatchedTransaction::fail(Fault fault) {
  if (std::exchange(is_refused_, true)) return;
  result_.kind = Result::Kind::fault;
  result_.text.clear();
  add_error(result_.text, fault_text(fault));
  result_.fault = std::move(fault);
}

// Redis's own words, by which it did nothing.
void WatchedTransaction::fail_with_reply(std::string_view error) {
  if (std::exchange(is_refused_, true)) return;
  result_.kind = Result::Kind::fault;
  result_.text.clear();
  add_error(result_.text, error);
  result_.is_moved = is_redirection(error);
  result_.fault = {FaultKind::unavailable, std::string{error}};
}

void WatchedTransaction::take_judgement(std::size_t at, std::string_view reply) {
  const auto& claim = work_.claims[at];
  const auto result = advance_result(claim->claim, reply);
  switch (result.kind) {
    case BatchResult::Kind::ruled:
      if (result.has_raised) raised_(claim->claim);
      if (result.verdict == Verdict::admitted || is_refused_) return;
      is_refused_ = true;
      claim->refusal = result.verdict;
      claim->highest = result.highest;
      result_.kind = Result::Kind::refused;
      result_.refusal = claim;
      add_error(result_.text, refusal_text(claim->claim, result.verdict, result.highest));
      return;
    case BatchResult::Kind::fault:
      return fail(result.fault);
    case BatchResult::Kind::error:
    case BatchResult::Kind::not_run:
      return take_error(reply);
  }
}

void WatchedTransaction::take_error(std::string_view reply) {
  if (reply.starts_with("-NOSCRIPT") && !has_forgotten_) {
    has_forgotten_ = true;
    // Once more, with the text; for a client that watches, whose watch ends with this, it is no answer.
    return fail({FaultKind::unavailable, "Redis forgot the guard's script; try again"});
  }
  fail_with_reply(reply.substr(1, reply.size() - 3));
}

void WatchedTransaction::take_absence(std::string_view reply) {
  if (reply == ok_reply) return;
  if (!reply.starts_with('-')) return fail({FaultKind::unavailable, "Redis answered with what is no ruling"});
  const auto resource = unfenced_refusal(reply.substr(1, reply.size() - 3));
  if (!resource) return take_error(reply);
  if (std::exchange(is_refused_, true)) return;
  result_.kind = Result::Kind::refused;
  result_.missing = *resource;
  add_error(result_.text, unclaimed_text(*resource));
}

bool WatchedTransaction::replied(std::string_view reply) {
  if (stage_ == Stage::idle) return false;
  if (stage_ == Stage::applying) return applied(reply);
  if (stage_ == Stage::undoing) return finish();
  const auto claims = work_.claims.size();
  const auto at = seen_++;
  const auto judged = claims + (work_.unclaimed.empty() ? 0 : 1);
  const auto multi_at = judged == 0 ? 0 : judged + 1;
  if (at == multi_at) {
    is_queueing_ = !reply.starts_with('-');
    if (!is_queueing_) fail_with_reply(reply.substr(1, reply.size() - 3));
    return end_judging();
  }
  if (at == 0) {
    if (reply.starts_with('-')) fail_with_reply(reply.substr(1, reply.size() - 3));
  } else if (at <= claims) {
    take_judgement(at - 1, reply);
  } else {
    take_absence(reply);
  }
  return false;
}

bool WatchedTransaction::end_judging() {
  if (is_refused_) return undo();
  stage_ = Stage::applying;
  seen_ = 0;
  add_command(work_.commands, {"EXEC"});
  port_.send(channel_, work_.slot, work_.commands, work_.count + 1, false);
  work_.commands.resize(work_.commands.size() - std::string_view{"*1\r\n$4\r\nEXEC\r\n"}.size());
  return false;
}

// Nothing was queued; what was watched is let go, the client's own watches with it, as EXEC does.
bool WatchedTransaction::undo() {
  stage_ = Stage::undoing;
  std::string end;
  add_command(end, {is_queueing_ ? "DISCARD" : "UNWATCH"});
  port_.send(channel_, work_.slot, end, 1, false);
  return false;
}

bool WatchedTransaction::finish() {
  const bool may_repeat = has_forgotten_ && attempt_ == 1 && !work_.is_watching;
  if (may_repeat && result_.kind == Result::Kind::fault && !result_.is_moved) {
    judge();
    return false;
  }
  stage_ = Stage::idle;
  return true;
}

bool WatchedTransaction::applied(std::string_view reply) {
  if (seen_++ < work_.count) {
    // What Redis does not queue makes EXEC fail.
    if (reply.starts_with('-')) fail_with_reply(reply.substr(1, reply.size() - 3));
    return false;
  }
  if (reply.starts_with('-')) {
    // By it Redis has done nothing. A slot that was moved meanwhile is told here, and not for each command.
    std::string error{reply.substr(1, reply.size() - 3)};
    const bool is_of_all = !work_.is_single && !result_.is_moved;
    // Redis told a command why, and the client was told QUEUED.
    if (is_of_all && is_refused_ && error.starts_with("EXECABORT"))
      error = fmt::format("EXECABORT Transaction discarded because of: {}", result_.fault.message);
    if (is_redirection(error) || is_of_all) is_refused_ = false;
    fail_with_reply(error);
  } else if (reply == nil_array && !work_.is_watching) {
    if (attempt_ < attempts_max) {
      judge();
      return false;
    }
    is_refused_ = false;
    fail({FaultKind::unavailable, "a fence changed each time it was tried; nothing was written, try again"});
  } else {
    auto bytes = reply;
    const auto all = take_value(bytes);
    if (all && (reply == nil_array || (all->kind == '*' && all->elements == work_.count))) {
      result_.kind = Result::Kind::replies;
      result_.text = work_.is_single ? all->inside : reply;
    } else {
      is_refused_ = false;
      fail({FaultKind::unknown, "Redis answered EXEC with what is no answer to it"});
    }
  }
  stage_ = Stage::idle;
  return true;
}

void WatchedTransaction::lost(bool was_sent, std::string_view why) {
  const bool is_unknown = stage_ == Stage::applying && was_sent && work_.writes;
  stage_ = Stage::idle;
  is_refused_ = false;
  fail(is_unknown
           ? Fault{FaultKind::unknown, fmt::format("the transaction was sent, and its end not seen: {}", why)}
           : Fault{FaultKind::unavailable, std::string{why}});
}

}  // namespace fenceguard::resp
