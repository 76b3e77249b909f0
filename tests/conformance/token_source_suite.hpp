#pragma once

// What every token source must do, whatever it rests on. An adapter runs the suite by naming its spaces:
//
//   INSTANTIATE_TEST_SUITE_P(Sqlite, TokenSourceSuite, testing::Values(SourceKind{"own_file",
//   make_own_file}),
//                            source_kind_name);
//
// A space is one fresh namespace; each handle that it opens stands for another process. Include it in one
// source of a test program.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "guard/token_source.hpp"
#include "tests/conformance/scale.hpp"

namespace fenceguard::test {

class SourceSpace {
 public:
  virtual ~SourceSpace() = default;
  // A handle of its own to this space's namespace, as another process would have it.
  [[nodiscard]] virtual std::unique_ptr<TokenSource> open() = 0;
};

struct SourceKind {
  std::string name;
  std::function<std::unique_ptr<SourceSpace>()> make;
  bool has_one_counter = true;  // all tokens of the namespace come from one counter: lowest_live() answers
  bool draws = true;            // there is a number of the whole namespace: draw() answers
  std::chrono::milliseconds short_ttl{300};  // more where the product counts in seconds
};

inline std::string source_kind_name(const testing::TestParamInfo<SourceKind>& info) {
  return info.param.name;
}

class TokenSourceSuite : public testing::TestWithParam<SourceKind> {
 protected:
  using Ms = std::chrono::milliseconds;
  static constexpr Ms long_ttl{60'000};
  static constexpr std::chrono::seconds limit{20};

  void SetUp() override {
    space_ = GetParam().make();
    here_ = space_->open();
    there_ = space_->open();
  }

  // The grant, which must be one.
  static Grant take(TokenSource& source, const Resource& resource, const Holder& holder, Ms ttl = long_ttl) {
    auto answer = source.try_acquire(resource, holder, ttl);
    auto* grant = std::get_if<Grant>(&answer);
    if (grant == nullptr) throw std::runtime_error{resource.name() + " is held"};
    return *grant;
  }

  static bool is_held(TokenSource& source, const Resource& resource, const Holder& holder) {
    return std::holds_alternative<Held>(source.try_acquire(resource, holder, long_ttl));
  }

  // Waits for the lease of resource to end by itself.
  static bool wait_until_free(TokenSource& source, const Resource& resource) {
    const auto deadline = BootClock::now() + limit;
    while (source.show(resource)) {
      if (BootClock::now() > deadline) return false;
      std::this_thread::sleep_for(Ms{5});
    }
    return true;
  }

  // Who else can act for a holder of here_: another process, unless leases live by the connection that took
  // them.
  [[nodiscard]] TokenSource& partner() const { return here_->lives_by_connection() ? *here_ : *there_; }

  static Claim claim_of(const Resource& resource, Token token, const std::string& holder) {
    return {resource, token, Holder{holder}, std::nullopt};
  }

  const Ms short_ttl = GetParam().short_ttl;
  const Resource r_{"accounts/42"};
  const Holder a_{"a"};
  const Holder b_{"b"};
  std::unique_ptr<SourceSpace> space_;
  std::unique_ptr<TokenSource> here_;
  std::unique_ptr<TokenSource> there_;
};

TEST_P(TokenSourceSuite, TokensRiseStrictlyFromGrantToGrant) {
  std::int64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    TokenSource& source = i % 2 == 0 ? *here_ : *there_;
    const auto grant = take(source, r_, i % 3 == 0 ? a_ : b_);
    EXPECT_TRUE(grant.is_new);
    EXPECT_GT(grant.claim.token.value(), last);
    EXPECT_EQ(grant.claim.resource, r_);
    EXPECT_FALSE(grant.claim.sequence);
    last = grant.claim.token.value();
    EXPECT_EQ(source.release(grant.claim), Release::released);
  }
}

TEST_P(TokenSourceSuite, TheTokenIsStableUnderRenewalAndForTheSameHolderAgain) {
  const auto grant = take(*here_, r_, a_);
  EXPECT_EQ(here_->renew(grant.claim, long_ttl), Renewal::renewed);
  EXPECT_EQ(partner().renew(grant.claim, long_ttl), Renewal::renewed);
  for (TokenSource* source : {here_.get(), &partner()}) {
    const auto again = take(*source, r_, a_);
    EXPECT_FALSE(again.is_new);
    EXPECT_EQ(again.claim, grant.claim);
    EXPECT_GE(again.ttl, long_ttl);
  }
  ASSERT_TRUE(here_->show(r_));
  EXPECT_EQ(here_->show(r_)->claim, grant.claim);
}

TEST_P(TokenSourceSuite, ALeaseThatLivesByAConnectionIsNobodyElsesWhateverTheyClaim) {
  if (!here_->lives_by_connection()) return;
  const auto grant = take(*here_, r_, a_);
  EXPECT_EQ(there_->renew(grant.claim, long_ttl), Renewal::lost);
  EXPECT_EQ(there_->release(grant.claim), Release::not_held);
  EXPECT_TRUE(is_held(*there_, r_, a_));
  EXPECT_EQ(here_->renew(grant.claim, long_ttl), Renewal::renewed);
}

TEST_P(TokenSourceSuite, AskingAgainNeverShortensALease) {
  (void)take(*here_, r_, a_, long_ttl);
  (void)take(*here_, r_, a_, short_ttl);
  EXPECT_GT(here_->show(r_)->remaining, long_ttl / 2);
}

TEST_P(TokenSourceSuite, ALockThatIsHeldIsNotGrantedToOthers) {
  const auto grant = take(*here_, r_, a_);
  for (TokenSource* source : {here_.get(), there_.get()}) {
    const auto answer = source->try_acquire(r_, b_, long_ttl);
    const auto* held = std::get_if<Held>(&answer);
    ASSERT_NE(held, nullptr);
    EXPECT_LE(held->retry_after, long_ttl);
  }
  EXPECT_EQ(there_->show(r_)->claim, grant.claim);
  // Another resource is another lock.
  EXPECT_TRUE(take(*there_, Resource{"accounts/43"}, b_).is_new);
}

TEST_P(TokenSourceSuite, AnExpiredLeaseIsHandedOverWithAHigherToken) {
  const auto first = take(*here_, r_, a_, short_ttl);
  ASSERT_TRUE(wait_until_free(*there_, r_));
  const auto second = take(*there_, r_, b_);
  EXPECT_TRUE(second.is_new);
  EXPECT_GT(second.claim.token, first.claim.token);
  EXPECT_EQ(there_->show(r_)->claim, second.claim);
}

TEST_P(TokenSourceSuite, TheSameHolderGetsANewTokenOnceItsLeaseExpired) {
  const auto first = take(*here_, r_, a_, short_ttl);
  ASSERT_TRUE(wait_until_free(*here_, r_));
  const auto second = take(*here_, r_, a_);
  EXPECT_TRUE(second.is_new);
  EXPECT_GT(second.claim.token, first.claim.token);
}

TEST_P(TokenSourceSuite, ARenewalKeepsTheLeasePastItsFirstTerm) {
  const auto grant = take(*here_, r_, a_, short_ttl);
  const auto until = BootClock::now() + 3 * short_ttl;
  while (BootClock::now() < until) {
    ASSERT_EQ(here_->renew(grant.claim, long_ttl), Renewal::renewed);
    std::this_thread::sleep_for(short_ttl / 10);
  }
  EXPECT_TRUE(is_held(*there_, r_, b_));
}

TEST_P(TokenSourceSuite, AWrongTokenOrHolderNeitherRenewsNorReleases) {
  const auto grant = take(*here_, r_, a_);
  const auto token = grant.claim.token;
  const Token higher{token.value() + 1};
  for (const auto& wrong : {claim_of(r_, token, "b"), claim_of(r_, higher, "a"), claim_of(r_, token, ""),
                            claim_of(Resource{"accounts/43"}, token, "a")}) {
    EXPECT_EQ(there_->renew(wrong, long_ttl), Renewal::lost);
    EXPECT_EQ(there_->release(wrong), Release::not_held);
  }
  EXPECT_EQ(here_->show(r_)->claim, grant.claim);
  EXPECT_EQ(here_->renew(grant.claim, long_ttl), Renewal::renewed);
}

TEST_P(TokenSourceSuite, ALateHeartbeatCannotStealTheLeaseBack) {
  const auto first = take(*here_, r_, a_, short_ttl);
  ASSERT_TRUE(wait_until_free(*there_, r_));
  EXPECT_EQ(here_->renew(first.claim, long_ttl), Renewal::lost);
  const auto second = take(*there_, r_, b_);
  EXPECT_EQ(here_->renew(first.claim, long_ttl), Renewal::lost);
  EXPECT_EQ(here_->show(r_)->claim, second.claim);
}

TEST_P(TokenSourceSuite, ALateReleaseCannotFreeSomebodyElsesLease) {
  const auto first = take(*here_, r_, a_, short_ttl);
  ASSERT_TRUE(wait_until_free(*there_, r_));
  EXPECT_EQ(here_->release(first.claim), Release::not_held);
  const auto second = take(*there_, r_, a_);  // the same holder's next tenure is somebody else's as well
  EXPECT_EQ(here_->release(first.claim), Release::not_held);
  EXPECT_EQ(there_->show(r_)->claim, second.claim);
}

TEST_P(TokenSourceSuite, AReleaseFreesTheLockAndASecondOneDoesNothing) {
  const auto grant = take(*here_, r_, a_);
  EXPECT_EQ(partner().release(grant.claim), Release::released);
  EXPECT_EQ(here_->release(grant.claim), Release::not_held);
  EXPECT_EQ(here_->renew(grant.claim, long_ttl), Renewal::lost);
  EXPECT_FALSE(here_->show(r_));
  EXPECT_GT(take(*there_, r_, b_).claim.token, grant.claim.token);
}

TEST_P(TokenSourceSuite, EndCutsOffWhoeverHoldsTheLock) {
  EXPECT_EQ(here_->end(r_), Release::not_held);
  const auto grant = take(*here_, r_, a_);
  EXPECT_EQ(there_->end(r_), Release::released);
  EXPECT_EQ(here_->renew(grant.claim, long_ttl), Renewal::lost);
  EXPECT_GT(take(*here_, r_, b_).claim.token, grant.claim.token);
}

TEST_P(TokenSourceSuite, ShowTellsTheLiveLeaseAndNothingElse) {
  EXPECT_FALSE(here_->show(r_));
  const auto grant = take(*here_, r_, a_);
  const auto record = there_->show(r_);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->claim, grant.claim);
  EXPECT_GT(record->remaining, Ms{0});
  EXPECT_LE(record->remaining, long_ttl);
  EXPECT_FALSE(there_->show(Resource{"accounts/43"}));
}

TEST_P(TokenSourceSuite, RaiseLiftsEveryLaterTokenAndNeverLowers) {
  const auto before = take(*here_, r_, a_);
  const Token mark{before.claim.token.value() + 1'000'000'000};
  there_->raise(r_, mark);
  EXPECT_EQ(here_->renew(before.claim, long_ttl), Renewal::renewed);  // a tenure's token stays
  EXPECT_EQ(take(*here_, r_, a_).claim.token, before.claim.token);
  here_->release(before.claim);
  const auto after = take(*here_, r_, b_);
  EXPECT_GT(after.claim.token, mark);
  here_->release(after.claim);
  there_->raise(r_, Token{1});
  there_->raise(r_, mark);
  EXPECT_GT(take(*here_, r_, a_).claim.token, after.claim.token);
}

TEST_P(TokenSourceSuite, ADrawnNumberLiesBetweenWhatWasGrantedAndWhatWillBe) {
  const auto before = take(*here_, r_, a_);
  if (!GetParam().draws) {
    EXPECT_THROW((void)there_->draw(), InvalidInput);
    return;
  }
  const Token drawn = there_->draw();
  EXPECT_GE(drawn, before.claim.token);
  EXPECT_GT(take(*here_, Resource{"accounts/43"}, a_).claim.token, drawn);
  here_->release(before.claim);
  EXPECT_GT(take(*here_, r_, b_).claim.token, drawn);
}

TEST_P(TokenSourceSuite, NoLiveTokenIsBelowTheLowestLive) {
  if (!GetParam().has_one_counter) {
    EXPECT_FALSE(here_->lowest_live());
    return;
  }
  const auto next = here_->lowest_live();  // nothing is held: what is still to be drawn
  ASSERT_TRUE(next);
  const auto first = take(*here_, r_, a_);
  EXPECT_GE(first.claim.token, *next);
  const auto second = take(*there_, Resource{"accounts/43"}, b_);
  EXPECT_LE(*there_->lowest_live(), first.claim.token);
  here_->release(first.claim);
  EXPECT_LE(*there_->lowest_live(), second.claim.token);
  EXPECT_GT(*there_->lowest_live(), first.claim.token);
  there_->release(second.claim);
  const auto third = here_->lowest_live();
  EXPECT_GT(*third, second.claim.token);
  EXPECT_GE(take(*here_, r_, a_).claim.token, *third);
}

TEST_P(TokenSourceSuite, ATimeToLiveOutsideTheLimitsIsInvalid) {
  for (const Ms ttl : {Ms{0}, Ms{-1}, ttl_min - Ms{1}, ttl_max + Ms{1}}) {
    EXPECT_THROW((void)here_->try_acquire(r_, a_, ttl), InvalidInput);
    EXPECT_THROW((void)here_->renew(claim_of(r_, Token{1}, "a"), ttl), InvalidInput);
  }
}

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

TEST_P(TokenSourceSuite, ALeaseIsKeptAliveAndTellsWhenItWasEnded) {
  // Long enough for a disk that hesitates: a renewal that comes too late loses the lease, and rightly.
  constexpr Ms kept_ttl{1'200};
  auto lease = here_->acquire(r_, {.ttl = kept_ttl, .holder = a_});
  ASSERT_TRUE(lease);
  const auto until = BootClock::now() + 2 * kept_ttl;
  while (BootClock::now() < until) {
    EXPECT_TRUE(is_held(*there_, r_, b_));
    std::this_thread::sleep_for(kept_ttl / 20);
  }
  EXPECT_FALSE(lease->lost().stop_requested());
  EXPECT_EQ(there_->end(r_), Release::released);
  const auto deadline = BootClock::now() + limit;
  while (!lease->lost().stop_requested() && BootClock::now() < deadline) std::this_thread::sleep_for(Ms{5});
  EXPECT_TRUE(lease->lost().stop_requested());
  EXPECT_EQ(lease->release(), Release::not_held);
}

TEST_P(TokenSourceSuite, TheCounterOutlivesTheProcessAndSoDoGrantsUnlessTheyLiveByAConnection) {
  const auto grant = take(*here_, r_, a_);
  there_->raise(r_, Token{grant.claim.token.value() + 100});
  here_.reset();
  there_.reset();
  here_ = space_->open();
  if (here_->lives_by_connection()) {
    EXPECT_FALSE(here_->show(r_));
  } else {
    EXPECT_EQ(take(*here_, r_, a_).claim, grant.claim);
    here_->release(grant.claim);
  }
  EXPECT_GT(take(*here_, r_, a_).claim.token.value(), grant.claim.token.value() + 100);
}

}  // namespace fenceguard::test
