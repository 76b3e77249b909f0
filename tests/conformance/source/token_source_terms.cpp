// A part of the suite of token_source_suite.hpp. What time does to a lease: it ends by itself, is
// renewed, or is kept alive.

#include <algorithm>
#include <chrono>
#include <thread>

#include "guard/source/lease_lister.hpp"
#include "tests/conformance/source/token_source_suite.hpp"

namespace fenceguard::test {

TEST_P(TokenSourceSuite, ATimeToLiveOutsideTheLimitsIsInvalid) {
  for (const Ms ttl : {Ms{0}, Ms{-1}, ttl_min - Ms{1}, ttl_max + Ms{1}}) {
    EXPECT_THROW((void)here_->try_acquire(r_, a_, ttl), InvalidInput);
    EXPECT_THROW((void)here_->renew(claim_of(r_, Token{1}, "a"), ttl), InvalidInput);
  }
}

TEST_P(TokenSourceSuite, AskingAgainNeverShortensALease) {
  (void)take(*here_, r_, a_, long_ttl);
  (void)take(*here_, r_, a_, short_ttl);
  EXPECT_GT(here_->show(r_)->remaining, long_ttl / 2);
}

TEST_P(TokenSourceSuite, ASourceThatListsLeasesListsTheLiveOnesInOrderAndNoHolders) {
  auto* lister = dynamic_cast<LeaseLister*>(there_.get());
  ASSERT_EQ(lister != nullptr, GetParam().lists);
  if (lister == nullptr) return;
  const auto named = [this](const char* end) { return Resource{r_.name() + end}; };
  (void)take(*here_, named("/c"), a_, long_ttl);
  const auto first = take(*here_, named("/a"), a_, long_ttl);
  (void)take(*here_, named("/b"), a_, short_ttl);
  (void)take(*here_, named("/'d%_"), b_, long_ttl);
  ASSERT_TRUE(wait_until_free(*there_, named("/b")));
  const auto page = lister->list_leases({.prefix = r_.name() + "/", .after = {}, .limit = 2});
  ASSERT_EQ(page.entries.size(), 2U);
  EXPECT_TRUE(page.has_more);
  EXPECT_EQ(page.entries[0].claim.resource, named("/'d%_"));
  EXPECT_EQ(page.entries[1].claim.resource, named("/a"));
  EXPECT_EQ(page.entries[1].claim.token, first.claim.token);
  EXPECT_EQ(page.entries[1].claim.holder, Holder{});
  EXPECT_EQ(page.entries[1].remaining.has_value(), !there_->lives_by_connection());
  EXPECT_GT(page.entries[1].remaining.value_or(long_ttl), long_ttl / 2);
  const auto rest = lister->list_leases({.prefix = r_.name() + "/", .after = r_.name() + "/a", .limit = 2});
  ASSERT_EQ(rest.entries.size(), 1U);
  EXPECT_FALSE(rest.has_more);
  EXPECT_EQ(rest.entries[0].claim.resource, named("/c"));
}

// Where a resource's slashes are encoded, or are those of a path, the locks are in another order at the
// server.
TEST_P(TokenSourceSuite, LeasesAreListedInTheOrderOfTheBytesOfTheirResources) {
  auto* lister = dynamic_cast<LeaseLister*>(there_.get());
  if (lister == nullptr) return;
  std::vector<std::string> names{"list!", "list/%2F", "list/a b", "list/a/b", "list/a0", "list0", "listä"};
  for (const auto& name : names) (void)take(*here_, Resource{name}, a_, long_ttl);
  (void)take(*here_, Resource{"lis"}, a_, long_ttl);
  (void)here_->release(take(*here_, Resource{"list/gone"}, a_, long_ttl).claim);
  std::vector<std::string> listed;
  for (bool has_more = true; has_more;) {
    const auto after = listed.empty() ? std::string{} : listed.back();
    const auto page = lister->list_leases({.prefix = "list", .after = after, .limit = 3});
    for (const auto& lease : page.entries) listed.push_back(lease.claim.resource.name());
    ASSERT_FALSE(page.has_more && page.entries.empty());
    has_more = page.has_more;
  }
  EXPECT_EQ(listed, names);
  EXPECT_EQ(lister->list_leases({.prefix = "list/a/", .after = {}, .limit = 3}).entries.size(), 1U);
  EXPECT_TRUE(lister->list_leases({.prefix = "no", .after = {}, .limit = 3}).entries.empty());
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

// The first renewal must reach the source within the first term. Where the machine hesitated for longer, the
// lease was lost, and rightly: that says nothing, and another lock tells.
TEST_P(TokenSourceSuite, ARenewalKeepsTheLeasePastItsFirstTerm) {
  for (int attempt = 0; attempt < attempts_max; ++attempt) {
    const auto resource = resource_of(attempt);
    const auto begun = BootClock::now();
    const auto grant = take(*here_, resource, a_, short_ttl);
    const auto first = here_->renew(grant.claim, long_ttl);
    if (first == Renewal::lost && BootClock::now() - begun >= short_ttl) continue;
    ASSERT_EQ(first, Renewal::renewed);
    const auto until = BootClock::now() + 3 * short_ttl;
    while (BootClock::now() < until) {
      ASSERT_EQ(here_->renew(grant.claim, long_ttl), Renewal::renewed);
      std::this_thread::sleep_for(short_ttl / 10);
    }
    EXPECT_TRUE(is_held(*there_, resource, b_));
    return;
  }
  FAIL() << "no renewal came in time";
}

TEST_P(TokenSourceSuite, ALeaseIsKeptAliveAndTellsWhenItWasEnded) {
  const Ms kept_ttl = std::max(Ms{1'200}, short_ttl);
  for (int attempt = 0; attempt < attempts_max && !HasFailure(); ++attempt) {
    const auto resource = resource_of(attempt);
    auto lease = here_->acquire(resource, {.ttl = kept_ttl, .holder = a_});
    ASSERT_TRUE(lease);
    if (!is_kept(*lease, kept_ttl)) continue;
    if (there_->end(resource) == Release::not_held) {
      EXPECT_TRUE(lease->lost().stop_requested());
      continue;
    }
    const auto deadline = BootClock::now() + limit;
    while (!lease->lost().stop_requested() && BootClock::now() < deadline) std::this_thread::sleep_for(Ms{5});
    EXPECT_TRUE(lease->lost().stop_requested());
    EXPECT_EQ(lease->release(), Release::not_held);
    return;
  }
  FAIL() << "no lease was kept alive";
}

}  // namespace fenceguard::test
