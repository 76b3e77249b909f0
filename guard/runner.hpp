#pragma once

// Runner: what a service wraps round a piece of work that needs a lock. It takes the lock, advances the
// guard, runs the caller's function, and where a claim turns out stale or in conflict it gives the lock back,
// lifts a source that has fallen behind the guard, takes the lock again and runs the function once more, a
// bounded number of times.
//
// Thread safety: run() may be called from several threads if source and guard may be.

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "guard/guard.hpp"
#include "guard/lease.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

struct RetryPolicy {
  int attempts_max = 5;  // grants used for one run, the first included
  std::chrono::milliseconds ttl{10'000};
  std::chrono::milliseconds wait{30'000};  // for the lock, at each attempt
  std::chrono::milliseconds pause{10};     // before the second attempt; doubles with each, at most pause_max
  std::chrono::milliseconds pause_max{1'000};
  std::stop_token stop{};  // gives up waiting for the lock when requested, and ends busy
  LeaseTerms terms{};      // of each lease
};

struct RunResult {
  enum class Ending {
    done,     // the function ran to its end and its last verdict was admitted or duplicate
    busy,     // the lock stayed held by others
    refused,  // every attempt ended stale or in conflict; verdict is the last one's
  };
  Ending ending = Ending::busy;
  int attempts = 0;
  std::optional<Verdict> verdict;  // the last verdict, of the advance or of the function
};

class Runner {
 public:
  // The caller's work under a lease: returns the verdict of its guarded write. On stale or conflict it must
  // have rolled back what it did, because it may be called again with a new lease. It should stop early when
  // lease.lost() is requested.
  using Body = std::function<Verdict(const Lease& lease)>;

  // REQUIRES: source and guard outlive the runner.
  Runner(TokenSource& source, Guard& guard, RetryPolicy policy = {})
      : source_{source}, guard_{guard}, policy_{std::move(policy)} {}

  // Runs body under a lease of resource that has been advanced at the guard. Exceptions of source, guard and
  // body pass through after the lease was released; nothing is repeated after one of them. Throws
  // InvalidInput where the source grants less than twice the time to stop.
  [[nodiscard]] RunResult run(const Resource& resource, const Body& body);

 private:
  [[nodiscard]] std::optional<Lease> take(const Resource& resource);
  Verdict attempt(const Lease& lease, const Body& body);

  TokenSource& source_;
  Guard& guard_;
  RetryPolicy policy_;
};

}  // namespace fenceguard
