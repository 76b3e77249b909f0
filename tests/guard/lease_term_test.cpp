#include "guard/source/lease_term.hpp"

#include <gtest/gtest.h>

namespace fenceguard {
namespace {

using namespace std::chrono_literals;

constexpr LeaseTerm::Time start{1h};

TEST(LeaseTerm, IsRenewedAtAThirdAndLostATenthBeforeTheEnd) {
  const LeaseTerm term{12s, start};
  EXPECT_EQ(term.renew_at(), start + 4s);
  EXPECT_EQ(term.lost_at(), start + 10'800ms);
  EXPECT_FALSE(term.is_lost(start + 10'799ms));
  EXPECT_TRUE(term.is_lost(start + 10'800ms));
  EXPECT_TRUE(term.is_lost(start + 1h));
}

TEST(LeaseTerm, CountsFromTheMomentBeforeTheRequestWasSent) {
  LeaseTerm term{12s, start};
  term.renewed(start + 4s, start + 9s);
  EXPECT_EQ(term.renew_at(), start + 8s);
  EXPECT_EQ(term.lost_at(), start + 14'800ms);
}

TEST(LeaseTerm, AFailedRenewalIsTriedAgainSoonAndMovesTheEndNowhere) {
  LeaseTerm term{12s, start};
  term.renewal_failed(start + 5s);
  EXPECT_EQ(term.renew_at(), start + 6s);
  EXPECT_EQ(term.lost_at(), start + 10'800ms);
}

TEST(LeaseTerm, OnceLostItStaysLost) {
  LeaseTerm late{12s, start};
  late.renewed(start + 10s, start + 11s);
  EXPECT_TRUE(late.is_lost(start + 11s));
  EXPECT_EQ(late.lost_at(), start + 10'800ms);

  LeaseTerm ended{12s, start};
  ended.ended();
  EXPECT_TRUE(ended.is_lost(start));
  ended.renewed(start + 1s, start + 2s);
  EXPECT_TRUE(ended.is_lost(start + 2s));
}

TEST(LeaseTerm, TimeToStopEndsItEarlierAndRenewsItMoreOften) {
  LeaseTerm term{12s, start, 6s};
  EXPECT_EQ(term.renew_at(), start + 1s);
  EXPECT_EQ(term.lost_at(), start + 4'800ms);
  term.renewed(start + 1s, start + 3s);
  EXPECT_EQ(term.renew_at(), start + 2s);
  EXPECT_EQ(term.lost_at(), start + 5'800ms);
  term.renewal_failed(start + 4s);
  EXPECT_EQ(term.renew_at(), start + 5s);
  EXPECT_EQ(term.lost_at(), start + 5'800ms);
}

TEST(LeaseTerm, TheShortestTermStillHasAnOrder) {
  const LeaseTerm term{10ms, start};
  EXPECT_LT(start, term.renew_at());
  EXPECT_LT(term.renew_at(), term.lost_at());
  EXPECT_LT(term.lost_at(), start + 10ms);
}

}  // namespace
}  // namespace fenceguard
