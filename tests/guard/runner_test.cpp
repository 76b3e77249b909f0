#include "guard/runner.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "guard/error.hpp"
#include "tests/guard/memory_guard.hpp"
#include "tests/guard/memory_source.hpp"

namespace fenceguard {
namespace {

using namespace std::chrono_literals;
using test::MemoryGuard;
using test::MemorySource;
using Ending = RunResult::Ending;

const Resource account{"accounts/42"};

class RunnerTest : public testing::Test {
 protected:
  static RetryPolicy quick(int attempts_max) {
    return {.attempts_max = attempts_max, .wait = 0ms, .pause = 1ms, .pause_max = 4ms};
  }

  Runner::Body writes(const std::string& value) {
    return [this, value](const Lease& lease) {
      seen.push_back(lease.claim().token);
      return guard.write(lease.claim(), value).verdict;
    };
  }

  static Claim claim_of(std::int64_t token, const std::string& holder) {
    return {account, Token{token}, Holder{holder}, std::nullopt};
  }

  MemorySource source;
  MemoryGuard guard;
  std::vector<Token> seen;  // the token of each call of the body
};

TEST_F(RunnerTest, RunsTheBodyOnceUnderAnAdvancedLeaseAndReleasesIt) {
  const auto body = [&](const Lease& lease) {
    EXPECT_EQ(guard.advance(lease.claim()).changed, false) << "the guard was not advanced before";
    return writes("70")(lease);
  };
  const auto result = Runner{source, guard, quick(5)}.run(account, body);
  EXPECT_EQ(result.ending, Ending::done);
  EXPECT_EQ(result.attempts, 1);
  EXPECT_EQ(result.verdict, Verdict::admitted);
  EXPECT_EQ(guard.value(account), "70");
  EXPECT_FALSE(source.show(account));
}

TEST_F(RunnerTest, StopEndsTheWaitForTheLock) {
  const auto held = source.acquire(account);
  ASSERT_TRUE(held);
  std::stop_source stop;
  auto policy = quick(5);
  policy.wait = 10min;
  policy.stop = stop.get_token();
  std::jthread stopping{[&] { stop.request_stop(); }};
  const auto result = Runner{source, guard, policy}.run(account, writes("70"));
  EXPECT_EQ(result.ending, Ending::busy);
  EXPECT_EQ(result.attempts, 0);
}

TEST_F(RunnerTest, ADuplicateIsDone) {
  const auto result =
      Runner{source, guard, quick(5)}.run(account, [](const Lease&) { return Verdict::duplicate; });
  EXPECT_EQ(result.ending, Ending::done);
  EXPECT_EQ(result.verdict, Verdict::duplicate);
}

TEST_F(RunnerTest, IsBusyWhenTheLockStaysHeld) {
  const auto lease = source.acquire(account);
  const auto result = Runner{source, guard, quick(5)}.run(account, writes("70"));
  EXPECT_EQ(result.ending, Ending::busy);
  EXPECT_EQ(result.attempts, 0);
  EXPECT_FALSE(result.verdict);
  EXPECT_TRUE(seen.empty());
}

TEST_F(RunnerTest, TakesTheLockAgainWhenTheBodyWasRefused) {
  int calls = 0;
  const auto body = [&](const Lease& lease) { return ++calls < 3 ? Verdict::stale : writes("70")(lease); };
  const auto result = Runner{source, guard, quick(5)}.run(account, body);
  EXPECT_EQ(result.ending, Ending::done);
  EXPECT_EQ(result.attempts, 3);
  EXPECT_EQ(seen, std::vector<Token>{Token{3}});
}

TEST_F(RunnerTest, IsRefusedAfterSoManyAttempts) {
  int calls = 0;
  const auto body = [&](const Lease&) { return ++calls % 2 == 1 ? Verdict::stale : Verdict::conflict; };
  const auto result = Runner{source, guard, quick(4)}.run(account, body);
  EXPECT_EQ(result.ending, Ending::refused);
  EXPECT_EQ(result.attempts, 4);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(result.verdict, Verdict::conflict);
  EXPECT_FALSE(source.show(account));
}

// What it shows: a source that was restored from a backup costs one attempt, not an outage.
// How: the guard has seen token 1000 and the source counts from 7 again.
TEST_F(RunnerTest, RaisesASourceThatHasFallenBehindAndRunsAboveTheGuard) {
  (void)guard.advance(claim_of(1'000, "before-the-restore"));
  source.fall_back_to(7);
  const auto result = Runner{source, guard, quick(5)}.run(account, writes("70"));
  EXPECT_EQ(result.ending, Ending::done);
  EXPECT_EQ(result.attempts, 2);
  EXPECT_EQ(source.raised(), std::vector<Token>{Token{1'000}});
  EXPECT_EQ(seen, std::vector<Token>{Token{1'001}});
}

TEST_F(RunnerTest, RaisesNoSourceToANumberThatWasMadeUp) {
  (void)guard.advance(claim_of(9'223'372'036'854'775'806, "evil"));
  EXPECT_THROW((void)(Runner{source, guard, quick(5)}.run(account, writes("70"))), Implausible);
  EXPECT_TRUE(source.raised().empty());
  EXPECT_TRUE(source.acquire(account));
}

TEST_F(RunnerTest, RaisesASourceThatIssuedANumberTwice) {
  (void)guard.advance(claim_of(8, "before-the-restore"));
  source.fall_back_to(7);
  const auto result = Runner{source, guard, quick(5)}.run(account, writes("70"));
  EXPECT_EQ(result.ending, Ending::done);
  EXPECT_EQ(seen, std::vector<Token>{Token{9}});
}

// What it shows: a client that lost its lock between the grant and the advance never raises the source.
// How: the lease is ended at the source at that moment, as if this process had been stopped past the term;
// lost() has not been signalled, because the next renewal is far away.
TEST_F(RunnerTest, RaisesNothingWhenItsLeaseIsGone) {
  guard.before_advance = [&](const Claim& claim) {
    (void)source.end(claim.resource);
    (void)guard.advance(claim_of(500, "next-holder"));
  };
  const auto result = Runner{source, guard, quick(1)}.run(account, writes("70"));
  EXPECT_EQ(result.ending, Ending::refused);
  EXPECT_EQ(result.verdict, Verdict::stale);
  EXPECT_TRUE(source.raised().empty());
  EXPECT_TRUE(seen.empty());
}

TEST_F(RunnerTest, AnExceptionOfTheBodyPassesThroughAfterTheLockWasReleased) {
  int calls = 0;
  const auto body = [&](const Lease&) -> Verdict {
    ++calls;
    throw OutcomeUnknown("the commit's end was not seen");
  };
  EXPECT_THROW((void)Runner(source, guard, quick(5)).run(account, body), OutcomeUnknown);
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(source.show(account));
}

TEST_F(RunnerTest, AFaultOfTheGuardPassesThroughAndTheBodyIsNotCalled) {
  guard.before_advance = [](const Claim&) { throw Unavailable("the fence store cannot be reached"); };
  EXPECT_THROW((void)Runner(source, guard, quick(5)).run(account, writes("70")), Unavailable);
  EXPECT_TRUE(seen.empty());
  EXPECT_FALSE(source.show(account));
}

TEST_F(RunnerTest, NoAttemptsAreNoGrants) {
  const auto result = Runner{source, guard, quick(0)}.run(account, writes("70"));
  EXPECT_EQ(result.ending, Ending::refused);
  EXPECT_EQ(source.draw(), Token{1});
}

}  // namespace
}  // namespace fenceguard
