// A part of the suite of token_source_suite.hpp. The numbers that a source gives out.

#include "tests/conformance/source/token_source_suite.hpp"

namespace fenceguard::test {

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

TEST_P(TokenSourceSuite, CounterOutlivesTheProcessAndSoDoGrantsWithoutConnection) {
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
