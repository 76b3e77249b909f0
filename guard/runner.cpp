#include "guard/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "guard/error.hpp"

namespace fenceguard {

std::optional<Lease> Runner::take(const Resource& resource) {
  require_sensible_ttl(policy_.ttl);
  auto grant =
      source_.wait_acquire(resource, Holder::random(),
                           {.ttl = policy_.ttl, .wait = policy_.wait, .holder = {}, .stop = policy_.stop});
  if (!grant) return std::nullopt;
  if (policy_.terms.time_to_stop > grant->ttl / 2) {
    source_.release(grant->claim);
    throw InvalidInput(fmt::format(
        "the source granted {}ms, and its holder may need {}ms to stop, more than half of that: ask the "
        "source for what it grants, or have it grant more",
        grant->ttl.count(), policy_.terms.time_to_stop.count()));
  }
  return Lease{source_, std::move(*grant), policy_.terms};
}

Verdict Runner::attempt(const Lease& lease, const Body& body) {
  const Ruling advanced = guard_.advance(lease.claim());
  if (advanced.verdict == Verdict::admitted) return body(lease);
  // Fresh and yet refused: the source has fallen behind what the guard has seen. It may be lifted only while
  // the lock is held, so that a truly stale client cannot use it to push the present holder out. Only the
  // source knows: a process that was stopped since it took the lock may not have been told of the loss yet.
  const bool is_fresh =
      !lease.lost().stop_requested() && source_.renew(lease.claim(), policy_.ttl) == Renewal::renewed;
  if (is_fresh) source_.lift(lease.claim(), advanced.highest);
  return advanced.verdict;
}

RunResult Runner::run(const Resource& resource, const Body& body) {
  RunResult result;
  auto pause = policy_.pause;
  while (result.attempts < policy_.attempts_max) {
    if (result.attempts > 0) {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, policy_.pause_max);
    }
    auto lease = take(resource);
    if (!lease) {
      result.ending = RunResult::Ending::busy;
      return result;
    }
    ++result.attempts;
    result.verdict = attempt(*lease, body);
    if (result.verdict == Verdict::admitted || result.verdict == Verdict::duplicate) {
      result.ending = RunResult::Ending::done;
      return result;
    }
  }
  result.ending = RunResult::Ending::refused;
  return result;
}

}  // namespace fenceguard
