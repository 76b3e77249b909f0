// The rule of the lane where old holders are cut off, one sentence a test: nothing enters while fencing is
// pending, one cut-off runs at a time, and only the store says what is pending.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lane/lane_driver.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PendingFencingInLane : public testing::Test {
 protected:
  PendingFencingInLane() { lanes_.cuts_off = true; }
  // The fence is at this token, and what is asked of the store is held from now on.
  void stand(std::int64_t token) {
    lanes_.end(lanes_.write("a", token));
    lanes_.holds = true;
  }
  // A higher token has raised the fence, and its cut is under way.
  Ticket overtake(std::int64_t token) {
    const Ticket write = lanes_.write("a", token);
    lanes_.answer();
    return write;
  }
  void fail_cut_off() { lanes_.answer(Fault{FaultKind::unavailable, "no"}); }

  LaneDriver lanes_;
};

TEST_F(PendingFencingInLane, BeginsOnceTheHigherTokenIsDurableAndLetsItInAfterwards) {
  stand(34);
  const Ticket write = lanes_.write("a", 35);
  EXPECT_THAT(lanes_.calls(), ElementsAre("raise a 35"));
  lanes_.answer();
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35"));
  EXPECT_EQ(lanes_.state(write), "waiting");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "entered");
  lanes_.end(write);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35)), "entered");
  EXPECT_THAT(lanes_.calls(), IsEmpty());
}

TEST_F(PendingFencingInLane, IsBegunOnceHoweverManyAsk) {
  stand(34);
  const Ticket write = overtake(35);
  const Ticket read = lanes_.ask(Kind::read, {LaneDriver::claim("a", 35)});
  const Ticket advance = lanes_.advance("a", 35);
  const Ticket numbered = lanes_.write("a", 35, 7);
  EXPECT_FALSE(lanes_.table.enter_at_once(99, Kind::write, LaneDriver::claim("a", 35), lanes_.now));
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35"));
  lanes_.answer();
  for (const Ticket ticket : {write, read, advance, numbered}) EXPECT_EQ(lanes_.state(ticket), "entered");
}

TEST_F(PendingFencingInLane, RunsBesideTheDrainAndBothAreAwaited) {
  stand(34);
  const Ticket old = lanes_.write("a", 34);
  const Ticket write = overtake(35);
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35"));
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "waiting") << "the older write is not over";
  lanes_.end(old);
  EXPECT_EQ(lanes_.state(write), "entered");
}

TEST_F(PendingFencingInLane, StaysPendingForTheFirstWhileHigherTokensCome) {
  stand(34);
  const Ticket second = overtake(35);
  const Ticket third = lanes_.write("a", 36);
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35", "raise a 36"));
  lanes_.answer_last();
  EXPECT_EQ(lanes_.state(second), "stale");
  EXPECT_EQ(lanes_.state(third), "waiting");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(third), "entered");
  EXPECT_THAT(lanes_.calls(), IsEmpty()) << "35 was never let in";
}

// The store may have gone on: once the cut-off is settled, no holder in between is pending there.
TEST_F(PendingFencingInLane, WaitersFailWhenTheFenceBecomesUnknown) {
  stand(34);
  const Ticket second = overtake(35);
  const Ticket third = lanes_.write("a", 36);
  lanes_.answer_last(Fault{FaultKind::unknown, "lost"});
  EXPECT_EQ(lanes_.state(third), "unavailable");
  EXPECT_EQ(lanes_.state(second), "unavailable");
  lanes_.answer();
  const Ticket again = lanes_.write("a", 36);
  lanes_.answer();
  EXPECT_EQ(lanes_.state(again), "entered");
  EXPECT_THAT(lanes_.calls(), IsEmpty()) << "35 was never let in";
}

TEST_F(PendingFencingInLane, OfALaterHolderIsBegunAnew) {
  stand(34);
  const Ticket second = overtake(35);
  lanes_.answer();
  ASSERT_EQ(lanes_.state(second), "entered");
  const Ticket third = overtake(36);
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 35 36"));
  lanes_.answer();
  EXPECT_EQ(lanes_.state(third), "waiting");
  lanes_.end(second);
  EXPECT_EQ(lanes_.state(third), "entered");
}

TEST_F(PendingFencingInLane, FailureIsToldToAllWaitersAndRetriedAfterAPause) {
  stand(34);
  const Ticket write = overtake(35);
  const Ticket numbered = lanes_.write("a", 35, 7);
  fail_cut_off();
  for (const Ticket ticket : {write, numbered}) EXPECT_EQ(lanes_.state(ticket), "unavailable");
  EXPECT_THAT(lanes_.fault(write).message, HasSubstr("no fence method has succeeded"));
  EXPECT_EQ(lanes_.fault(write).retry_after, Time{1'000});
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35)), "unavailable") << "at once";
  EXPECT_THAT(lanes_.calls(), IsEmpty());
  lanes_.wait(Time{1'000});
  const Ticket again = lanes_.write("a", 35);
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35"));
  lanes_.answer();
  EXPECT_EQ(lanes_.state(again), "entered");
}

TEST_F(PendingFencingInLane, IsFoundByTheNextGuardBesideAnEqualClaim) {
  lanes_.store["a"].record = Fence{Token{35}, Holder{"h35"}, std::nullopt, false};
  lanes_.pending_fencing["a"] = 34;
  lanes_.holds = true;
  const Ticket write = lanes_.write("a", 35);
  lanes_.answer();
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35"));
  EXPECT_EQ(lanes_.state(write), "waiting");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "entered");
}

TEST_F(PendingFencingInLane, IsBegunAlsoWhileTheLaneIsQuarantined) {
  stand(34);
  lanes_.end(lanes_.write("a", 34), Ending::unknown);
  const Ticket write = overtake(35);
  EXPECT_EQ(lanes_.state(write), "unavailable");
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35"));
  lanes_.answer();
  lanes_.wait(LaneDriver::settle);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35)), "entered");
}

TEST_F(PendingFencingInLane, IsBegunByTheNextOperationIfTheFirstWithdrew) {
  stand(34);
  const Ticket write = lanes_.write("a", 35);
  ASSERT_TRUE(lanes_.withdraw(write));
  lanes_.answer();
  EXPECT_THAT(lanes_.calls(), IsEmpty());
  const Ticket again = lanes_.write("a", 35);
  EXPECT_THAT(lanes_.calls(), ElementsAre("load a")) << "an idle lane is not kept for it";
  lanes_.answer();
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35"));
  lanes_.answer();
  EXPECT_EQ(lanes_.state(again), "entered");
}

TEST_F(PendingFencingInLane, OfARevokeIsDoneBeforeItIsAnswered) {
  stand(34);
  const Ticket revoke = lanes_.revoke("a");
  lanes_.answer();
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 34"));
  EXPECT_EQ(lanes_.state(revoke), "waiting");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(revoke), "entered");
  const Ticket write = overtake(35);
  EXPECT_EQ(lanes_.state(write), "entered") << "nobody is left to be cut off";
}

TEST_F(PendingFencingInLane, KeepsAPairOutOfBothItsLanes) {
  lanes_.end(lanes_.write("b", 5));
  stand(34);
  const Ticket pair = lanes_.ask(Kind::write, {LaneDriver::claim("b", 5), LaneDriver::claim("a", 35)});
  lanes_.answer();
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35"));
  EXPECT_EQ(lanes_.state(lanes_.write("b", 5)), "entered") << "the other lane goes on";
  EXPECT_EQ(lanes_.state(pair), "waiting");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(pair), "entered");
}

TEST_F(PendingFencingInLane, IsAskedForAgainWhereFencesAreForgottenMeanwhile) {
  stand(34);
  const Ticket write = overtake(35);
  lanes_.forget_fences();
  EXPECT_THAT(lanes_.calls(), ElementsAre("cut a 34 35", "load a"));
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "waiting");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "entered");
}

}  // namespace
}  // namespace fenceguard::test
