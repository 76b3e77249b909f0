// A part of the suite of token_source_suite.hpp. Many who want one lock, and those who wait for it.

#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "tests/conformance/scale.hpp"
#include "tests/conformance/source/token_source_suite.hpp"

namespace fenceguard::test {

// Many threads in two processes ask for one free lock: one is granted, and the others learn that it is held.
TEST_P(TokenSourceSuite, OfManyWhoRaceForOneLockExactlyOneWins) {
  constexpr int racers = 8;
  std::set<std::int64_t> tokens;
  for (int round = 0; round < scaled(15); ++round) {
    const Resource resource{"race/" + std::to_string(round)};
    std::atomic<int> winners{0};
    std::atomic<std::int64_t> token{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < racers; ++i) {
      threads.emplace_back([&, i] {
        TokenSource& source = i % 2 == 0 ? *here_ : *there_;
        const auto answer = source.try_acquire(resource, Holder{"h" + std::to_string(i)}, long_ttl);
        if (const auto* grant = std::get_if<Grant>(&answer)) {
          ++winners;
          token = grant->claim.token.value();
        }
      });
    }
    threads.clear();
    EXPECT_EQ(winners, 1);
    EXPECT_TRUE(tokens.insert(token).second) << "token " << token << " was granted twice";
    EXPECT_EQ(here_->show(resource)->claim.token.value(), token);
  }
}

// Threads in two processes take and free locks as fast as they can: nobody meets another inside, and the
// tokens of each lock rise in the order in which it was held.
TEST_P(TokenSourceSuite, UnderContentionTenuresExcludeEachOtherAndTokensRise) {
  constexpr int takers = 6;
  struct Lock {
    Resource resource;
    std::atomic<int> inside{0};
    std::int64_t last = 0;  // protected by the lock itself
  };
  Lock locks[2]{{Resource{"busy/0"}}, {Resource{"busy/1"}}};
  std::atomic<int> violations{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < takers; ++i) {
    threads.emplace_back([&, i] {
      TokenSource& source = i % 2 == 0 ? *here_ : *there_;
      Lock& lock = locks[i / 2 % 2];
      for (int turn = 0; turn < scaled(24); ++turn) {
        const auto grant =
            source.wait_acquire(lock.resource, Holder::random(), {.ttl = long_ttl, .wait = Ms{60'000}});
        if (!grant || lock.inside.fetch_add(1) != 0 || grant->claim.token.value() <= lock.last) ++violations;
        if (!grant) return;
        lock.last = grant->claim.token.value();
        lock.inside.fetch_sub(1);
        source.release(grant->claim);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(violations, 0);
}

TEST_P(TokenSourceSuite, AWaiterGetsTheLockWhenItIsReleased) {
  auto first = here_->acquire(r_, {.ttl = long_ttl, .holder = a_});
  ASSERT_TRUE(first);
  EXPECT_FALSE(there_->acquire(r_, {.ttl = long_ttl, .wait = Ms{20}, .holder = b_}));
  std::optional<Lease> second;
  std::atomic<bool> asked{false};
  std::jthread waiter{[&] {
    asked = true;
    second = there_->acquire(r_, {.ttl = long_ttl, .wait = Ms{20'000}, .holder = b_});
  }};
  while (!asked) std::this_thread::yield();
  EXPECT_EQ(first->release(), Release::released);
  waiter.join();
  ASSERT_TRUE(second);
  EXPECT_GT(second->claim().token, first->claim().token);
  EXPECT_FALSE(first->lost().stop_requested());
}

TEST_P(TokenSourceSuite, AWaiterGetsTheLockWhenTheLeaseExpires) {
  const auto first = take(*here_, r_, a_, short_ttl);
  const auto second = there_->acquire(r_, {.ttl = long_ttl, .wait = Ms{20'000}, .holder = b_});
  ASSERT_TRUE(second);
  EXPECT_GT(second->claim().token, first.claim.token);
}

TEST_P(TokenSourceSuite, AStopEndsAWaitWithoutAGrant) {
  const auto grant = take(*here_, r_, a_);
  std::stop_source stop;
  std::optional<Lease> lease;
  const auto begin = BootClock::now();
  std::jthread waiter{[&] {
    lease =
        there_->acquire(r_, {.ttl = long_ttl, .wait = Ms{60'000}, .holder = b_, .stop = stop.get_token()});
  }};
  stop.request_stop();
  waiter.join();
  EXPECT_FALSE(lease);
  EXPECT_LT(BootClock::now() - begin, limit);
  EXPECT_EQ(here_->show(r_)->claim, grant.claim);
  // Who went away is not served later.
  here_->release(grant.claim);
  EXPECT_FALSE(here_->show(r_));
}

}  // namespace fenceguard::test
