// A part of the suite of token_source_suite.hpp. Who holds a lock, and what a holder's claim can do
// while its lease lasts.

#include "tests/conformance/source/token_source_suite.hpp"

namespace fenceguard::test {

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

TEST_P(TokenSourceSuite, ALockThatIsHeldIsNotGrantedToOthers) {
  const auto grant = take(*here_, r_, a_);
  for (TokenSource* source : {here_.get(), there_.get()}) {
    const auto answer = source->try_acquire(r_, b_, long_ttl);
    const auto* held = std::get_if<LockBusy>(&answer);
    ASSERT_NE(held, nullptr);
    EXPECT_LE(held->retry_after, long_ttl);
  }
  EXPECT_EQ(there_->show(r_)->claim, grant.claim);
  // Another resource is another lock.
  EXPECT_TRUE(take(*there_, Resource{"accounts/43"}, b_).is_new);
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
  EXPECT_EQ(record->remaining.has_value(), !there_->lives_by_connection());
  EXPECT_GT(here_->show(r_)->remaining, Ms{0});
  EXPECT_LE(here_->show(r_)->remaining, long_ttl);
  EXPECT_FALSE(there_->show(Resource{"accounts/43"}));
}

}  // namespace fenceguard::test
