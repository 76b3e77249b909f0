// The rule of the lane, one sentence a test: higher tokens, older writes that are under way, and writes whose
// end was not seen.

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
using testing::Not;

class LaneTableTest : public testing::Test {
 protected:
  // The fence of a resource is at this token, and nothing is under way.
  void stand(const std::string& resource, std::int64_t token) { lanes_.end(lanes_.write(resource, token)); }
  // A write is under way; the fence is at its token.
  Ticket begin(const std::string& resource, std::int64_t token) {
    const Ticket ticket = lanes_.write(resource, token);
    EXPECT_EQ(lanes_.state(ticket), "entered");
    return ticket;
  }

  LaneDriver lanes_;
};

TEST_F(LaneTableTest, TheFirstTokenIsRaisedDurablyBeforeItIsLetIn) {
  lanes_.holds = true;
  const Ticket write = lanes_.write("a", 34);
  EXPECT_THAT(lanes_.calls(), ElementsAre("load a"));
  lanes_.answer();
  EXPECT_THAT(lanes_.calls(), ElementsAre("raise a 34"));
  EXPECT_EQ(lanes_.state(write), "waiting");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "entered");
  EXPECT_EQ(lanes_.entry(write).rulings.at(0).highest, 34);
}

TEST_F(LaneTableTest, AnEqualClaimAsksTheStoreNothing) {
  stand("a", 34);
  lanes_.holds = true;
  const Ticket write = lanes_.write("a", 34);
  EXPECT_EQ(lanes_.state(write), "entered");
  lanes_.end(write);
  EXPECT_EQ(lanes_.state(write), "left");
  EXPECT_THAT(lanes_.calls(), IsEmpty());
}

TEST_F(LaneTableTest, WritesUnderOneTokenRunSideBySide) {
  const Ticket first = begin("a", 34);
  const Ticket second = begin("a", 34);
  lanes_.end(second);
  lanes_.end(first);
  EXPECT_EQ(lanes_.table.figures().in_flight, 0u);
}

TEST_F(LaneTableTest, AHigherTokenRaisesAtOnceAndWaitsForTheOlderWrite) {
  const Ticket old = begin("a", 34);
  const Ticket write = lanes_.write("a", 35);
  EXPECT_EQ(lanes_.store["a"].highest(), 35);
  EXPECT_EQ(lanes_.state(write), "waiting");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
  lanes_.end(old);
  EXPECT_EQ(lanes_.state(write), "entered");
}

TEST_F(LaneTableTest, AWriteIsOvertakenOnceAHigherTokenIsDurable) {
  const auto is_overtaken = [&](std::int64_t token) {
    return lanes_.table.is_overtaken(Resource{"a"}, Token{token});
  };
  stand("a", 33);
  EXPECT_FALSE(is_overtaken(32)) << "an idle lane";
  const Ticket old = begin("a", 34);
  EXPECT_FALSE(is_overtaken(34));
  lanes_.holds = true;
  (void)lanes_.write("a", 35);
  EXPECT_FALSE(is_overtaken(34)) << "not yet durable";
  lanes_.answer();
  EXPECT_TRUE(is_overtaken(34));
  EXPECT_FALSE(is_overtaken(35));
  lanes_.end(old);
}

// The fence was raised before the drain is over, so the newer token is equal when it asks again.
TEST_F(LaneTableTest, AnEqualClaimWaitsTooWhileAnOlderWriteIsUnderWay) {
  const Ticket old = begin("a", 34);
  (void)lanes_.write("a", 35);
  const Ticket again = lanes_.write("a", 35);
  const Ticket read = lanes_.ask(Kind::read, {LaneDriver::claim("a", 35)});
  const Ticket advance = lanes_.advance("a", 35);
  for (const Ticket ticket : {again, read, advance}) EXPECT_EQ(lanes_.state(ticket), "waiting");
  lanes_.end(old, Ending::refused);
  for (const Ticket ticket : {again, read, advance}) EXPECT_EQ(lanes_.state(ticket), "entered");
  EXPECT_EQ(lanes_.table.figures().in_flight, 2u) << "reads and advances are over when they are let in";
}

TEST_F(LaneTableTest, WhileARaiseIsNotDurableNothingIsDecidedThere) {
  stand("a", 34);
  stand("b", 34);
  lanes_.holds = true;
  const Ticket raising = lanes_.write("a", 35);
  const Ticket equal_before = lanes_.write("a", 34);
  const Ticket equal = lanes_.write("a", 35);
  const Ticket higher = lanes_.write("a", 36);
  for (const Ticket ticket : {raising, equal_before, equal, higher})
    EXPECT_EQ(lanes_.state(ticket), "waiting");
  EXPECT_EQ(lanes_.state(lanes_.write("b", 34)), "entered") << "other resources go on";
  lanes_.answer();
  EXPECT_EQ(lanes_.state(raising), "entered");
  EXPECT_EQ(lanes_.state(equal_before), "stale");
  EXPECT_EQ(lanes_.state(equal), "entered");
  EXPECT_THAT(lanes_.calls(), ElementsAre("raise a 36"));
  lanes_.answer();
  EXPECT_EQ(lanes_.state(higher), "waiting");
}

class FailedRaise : public LaneTableTest, public testing::WithParamInterface<FaultKind> {};

TEST_P(FailedRaise, AnswersItsAskerAndTheFenceIsLookedUpAgain) {
  stand("a", 34);
  lanes_.holds = true;
  const Ticket raising = lanes_.write("a", 35);
  const Ticket equal = lanes_.write("a", 34);
  lanes_.answer(Fault{GetParam(), "no"}, false);
  // Of a write that was not let in nothing was forwarded, whatever became of the fence.
  const bool is_unknown = GetParam() == FaultKind::unknown;
  EXPECT_EQ(lanes_.state(raising), is_unknown ? "unavailable" : to_string(GetParam()));
  EXPECT_EQ(lanes_.fault(raising).message.find("the fence may have been raised") != std::string::npos,
            is_unknown);
  EXPECT_THAT(lanes_.calls(), ElementsAre("load a")) << "what is known is not what the store says";
  lanes_.answer();
  EXPECT_EQ(lanes_.state(equal), "entered");
}

INSTANTIATE_TEST_SUITE_P(Kinds, FailedRaise,
                         testing::Values(FaultKind::unavailable, FaultKind::unknown, FaultKind::implausible));

// A read is as little begun as a write; an advance is the raise itself.
TEST_F(LaneTableTest, ARaiseOfUnknownOutcomeIsUnknownToAnAdvanceAlone) {
  stand("a", 34);
  lanes_.holds = true;
  const Ticket read = lanes_.ask(Kind::read, {LaneDriver::claim("a", 35)});
  lanes_.answer(Fault{FaultKind::unknown, "not seen"}, false);
  EXPECT_EQ(lanes_.state(read), "unavailable");
  lanes_.holds = false;
  stand("b", 34);
  lanes_.holds = true;
  const Ticket advance = lanes_.advance("b", 35);
  lanes_.answer(Fault{FaultKind::unknown, "not seen"}, false);
  EXPECT_EQ(lanes_.state(advance), "unknown");
}

TEST_F(LaneTableTest, ARaiseOfUnknownOutcomeIsFoundByTheNextLook) {
  stand("a", 34);
  lanes_.holds = true;
  const Ticket raising = lanes_.write("a", 35);
  lanes_.answer(Fault{FaultKind::unknown, "not seen"}, true);
  EXPECT_EQ(lanes_.state(raising), "unavailable");
  lanes_.holds = false;
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35)), "entered");
}

TEST_F(LaneTableTest, ALookThatFailsFailsItsAskerAlone) {
  lanes_.holds = true;
  const Ticket first = lanes_.write("a", 34);
  const Ticket second = lanes_.write("a", 34);
  lanes_.answer(Fault{FaultKind::unavailable, "no state"});
  EXPECT_EQ(lanes_.state(first), "unavailable");
  lanes_.holds = false;
  lanes_.answer_all();
  EXPECT_EQ(lanes_.state(second), "entered");
}

TEST_F(LaneTableTest, AFloorThatOnlyTheStoreKnowsIsFoundByTheRaise) {
  stand("a", 34);
  lanes_.store["a"] = {std::nullopt, 50};
  const Ticket write = lanes_.write("a", 40);
  EXPECT_EQ(lanes_.state(write), "stale");
  EXPECT_EQ(lanes_.refusal(write).ruling.highest, 50);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 51)), "entered");
}

TEST_F(LaneTableTest, WaitingClaimsAreJudgedAgain) {
  const Ticket old = begin("a", 34);
  const Ticket middle = lanes_.write("a", 35);
  const Ticket advance = lanes_.advance("a", 35);
  const Ticket newest = lanes_.write("a", 36);
  EXPECT_EQ(lanes_.state(middle), "stale");
  EXPECT_EQ(lanes_.state(advance), "stale");
  EXPECT_EQ(lanes_.state(newest), "waiting");
  lanes_.end(old);
  EXPECT_EQ(lanes_.state(newest), "entered");
}

TEST_F(LaneTableTest, ARefusalNeedsNoWait) {
  (void)begin("a", 34);
  (void)lanes_.write("a", 35);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35, {}, "somebody-else")), "conflict");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 33)), "stale");
}

// 34 is in flight, 35 arrives, 34 times out, 35 asks again: what 34 wrote may still land.
TEST_F(LaneTableTest, AfterATimeOutTheNextTokenAsksAgainAndIsStillKeptOut) {
  const Ticket old = begin("a", 34);
  const Ticket write = lanes_.write("a", 35);
  lanes_.end(old, Ending::unknown);
  EXPECT_EQ(lanes_.state(old), "left");
  EXPECT_EQ(lanes_.state(write), "unavailable");
  EXPECT_EQ(lanes_.fault(write).retry_after, LaneDriver::settle);
  lanes_.wait(Time{10'000});
  const Ticket again = lanes_.write("a", 35);
  EXPECT_EQ(lanes_.state(again), "unavailable");
  EXPECT_EQ(lanes_.fault(again).retry_after, Time{20'000});
  lanes_.wait(Time{19'999});
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35)), "unavailable");
  lanes_.wait(Time{1});
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35)), "entered");
}

TEST_F(LaneTableTest, AnUnknownOutcomeQuarantinesForEveryClaimThatMightBeAdmitted) {
  const Ticket write = begin("a", 34);
  const Ticket beside = begin("a", 34);
  lanes_.end(write, Ending::unknown);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "unavailable") << "also to its own holder";
  EXPECT_EQ(lanes_.state(lanes_.ask(Kind::read, {LaneDriver::claim("a", 34)})), "unavailable");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 33)), "stale") << "a refusal needs no wait";
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, {}, "other")), "conflict");
  EXPECT_EQ(lanes_.state(lanes_.write("b", 34)), "entered") << "other resources stay open";
  EXPECT_EQ(lanes_.table.figures().in_flight, 2u) << "what was let in beside it goes on";
  lanes_.end(beside);
  EXPECT_EQ(lanes_.state(beside), "left");
}

TEST_F(LaneTableTest, AHigherTokenRaisesAClosedFenceAndIsThenToldToComeBack) {
  lanes_.end(begin("a", 34), Ending::unknown);
  lanes_.wait(Time{5'000});
  const Ticket write = lanes_.write("a", 35);
  EXPECT_EQ(lanes_.state(write), "unavailable");
  EXPECT_EQ(lanes_.fault(write).retry_after, Time{25'000});
  EXPECT_THAT(lanes_.fault(write).message, HasSubstr("the fence was raised"));
  EXPECT_EQ(lanes_.store["a"].highest(), 35);
  EXPECT_THAT(lanes_.fault(lanes_.write("a", 35)).message, Not(HasSubstr("raised")));
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
}

TEST_F(LaneTableTest, OfSeveralUnknownOutcomesTheLatestCounts) {
  const Ticket first = begin("a", 34);
  const Ticket second = begin("a", 34);
  lanes_.end(first, Ending::unknown);
  lanes_.wait(Time{20'000});
  lanes_.end(second, Ending::unknown);
  lanes_.wait(Time{29'999});
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35)), "unavailable");
  lanes_.wait(Time{1});
  EXPECT_EQ(lanes_.state(lanes_.write("a", 35)), "entered");
  EXPECT_EQ(lanes_.table.figures().settle_closures, 2u);
}

TEST_F(LaneTableTest, AfterSettlingWhatIsStillInFlightIsWaitedFor) {
  const Ticket lost = begin("a", 34);
  const Ticket slow = begin("a", 34);
  lanes_.end(lost, Ending::unknown);
  lanes_.wait(LaneDriver::settle);
  const Ticket write = lanes_.write("a", 35);
  EXPECT_EQ(lanes_.state(write), "waiting");
  lanes_.end(slow);
  EXPECT_EQ(lanes_.state(write), "entered");
}

TEST_F(LaneTableTest, AnUnknownOutcomeFailsAWaitingAdvance) {
  const Ticket old = begin("a", 34);
  const Ticket advance = lanes_.advance("a", 35);
  lanes_.end(old, Ending::unknown);
  EXPECT_EQ(lanes_.state(advance), "unavailable");
  EXPECT_GT(lanes_.fault(advance).retry_after, Time{0});
}

TEST_F(LaneTableTest, RaiseThatBecomesDurableInAClosedLaneIsFailed) {
  const Ticket old = begin("a", 34);
  lanes_.holds = true;
  const Ticket write = lanes_.write("a", 35);
  lanes_.end(old, Ending::unknown);
  EXPECT_EQ(lanes_.state(write), "waiting");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "unavailable");
  EXPECT_EQ(lanes_.store["a"].highest(), 35);
}

TEST_F(LaneTableTest, AfterAStopThatLeftSomethingOpenEveryResourceIsClosed) {
  lanes_.table.close_all(lanes_.now + Time{30'000});
  EXPECT_FALSE(lanes_.table.is_settled(lanes_.now));
  const Ticket write = lanes_.write("a", 34);
  EXPECT_EQ(lanes_.state(write), "unavailable");
  EXPECT_EQ(lanes_.fault(write).retry_after, Time{30'000});
  EXPECT_EQ(lanes_.store["a"].highest(), 34);
  EXPECT_EQ(lanes_.state(lanes_.advance("b", 7)), "unavailable");
  EXPECT_EQ(lanes_.table.figures().lanes, 0u);
  lanes_.wait(Time{30'000});
  EXPECT_TRUE(lanes_.table.is_settled(lanes_.now));
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "entered");
}

TEST_F(LaneTableTest, ARevokeClosesAtOnceAndWaitsForEveryWriteThatWasLetIn) {
  const Ticket own = begin("a", 34);
  const Ticket revoke = lanes_.revoke("a");
  EXPECT_TRUE(lanes_.store["a"].record->closed);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
  const Ticket next = lanes_.write("a", 35);
  EXPECT_EQ(lanes_.state(revoke), "waiting");
  lanes_.end(own);
  EXPECT_EQ(lanes_.state(revoke), "entered");
  EXPECT_EQ(lanes_.state(next), "entered") << "the next higher token opens the fence again";
}

TEST_F(LaneTableTest, ARevokeRefusesWaitersUnderTheTokenThatItCutsOff) {
  (void)begin("a", 34);
  const Ticket waiting = lanes_.write("a", 35);
  (void)lanes_.revoke("a");
  EXPECT_EQ(lanes_.state(waiting), "stale");
}

TEST_F(LaneTableTest, ARevokeCannotWaitForAWriteOfUnknownOutcome) {
  const Ticket own = begin("a", 34);
  const Ticket waiting = lanes_.revoke("a");
  lanes_.end(own, Ending::unknown);
  EXPECT_EQ(lanes_.state(waiting), "unavailable");
  const Ticket later = lanes_.revoke("a");
  EXPECT_EQ(lanes_.state(later), "unavailable");
  EXPECT_EQ(lanes_.fault(later).retry_after, LaneDriver::settle);
  EXPECT_THAT(lanes_.fault(later).message, HasSubstr("the fence was closed"));
}

TEST_F(LaneTableTest, ACrowdKeepsNeitherATakeOverNorARevokeOut) {
  LaneDriver lanes{{LaneDriver::settle, 3, 3, 100}};
  const Ticket old = lanes.write("a", 34);
  for (int i = 0; i < 3; ++i) (void)lanes.write("a", 35);
  EXPECT_EQ(lanes.state(lanes.write("a", 36)), "unavailable");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(lanes.state(lanes.advance("a", 35)), "waiting");
  const Ticket revoke = lanes.revoke("a");
  EXPECT_EQ(lanes.state(revoke), "waiting");
  lanes.holds = true;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(lanes.state(lanes.advance("a", 36 + i)), "waiting");
  EXPECT_EQ(lanes.state(lanes.advance("a", 50)), "unavailable") << "as much room again, and no more";
  lanes.end(old);
  EXPECT_EQ(lanes.state(revoke), "entered");
}

TEST_F(LaneTableTest, ARevokeThatFailsIsAnsweredAndTheFenceLookedUpAgain) {
  stand("a", 34);
  lanes_.holds = true;
  const Ticket revoke = lanes_.revoke("a");
  const Ticket write = lanes_.write("a", 34);
  lanes_.answer(Fault{FaultKind::unknown, "not seen"}, true);
  EXPECT_EQ(lanes_.state(revoke), "unknown");
  lanes_.answer_all();
  EXPECT_EQ(lanes_.state(write), "stale");
}

TEST_F(LaneTableTest, AWaiterThatDisconnectsIsNotAdmitted) {
  const Ticket old = begin("a", 34);
  const Ticket gone = lanes_.write("a", 35);
  const Ticket stays = lanes_.write("a", 35);
  EXPECT_TRUE(lanes_.withdraw(gone));
  lanes_.end(old);
  EXPECT_EQ(lanes_.state(gone), "withdrawn");
  EXPECT_EQ(lanes_.state(stays), "entered");
  EXPECT_FALSE(lanes_.withdraw(stays)) << "it was let in";
  EXPECT_FALSE(lanes_.withdraw(gone));
}

TEST_F(LaneTableTest, AClientThatDisconnectsDuringItsRaiseLeavesTheRaisedFence) {
  stand("a", 34);
  lanes_.holds = true;
  const Ticket gone = lanes_.write("a", 35);
  const Ticket behind = lanes_.write("a", 35);
  EXPECT_TRUE(lanes_.withdraw(gone));
  EXPECT_FALSE(lanes_.withdraw(gone));
  lanes_.answer();
  EXPECT_EQ(lanes_.state(gone), "withdrawn");
  EXPECT_EQ(lanes_.state(behind), "entered");
}

TEST_F(LaneTableTest, WhatIsUnderWayOrUnknownIsNotSettled) {
  EXPECT_TRUE(lanes_.table.is_settled(lanes_.now));
  const Ticket write = lanes_.write("a", 34);
  EXPECT_FALSE(lanes_.table.is_settled(lanes_.now));
  lanes_.end(write, Ending::unknown);
  EXPECT_FALSE(lanes_.table.is_settled(lanes_.now));
  lanes_.wait(LaneDriver::settle);
  EXPECT_TRUE(lanes_.table.is_settled(lanes_.now));
}

// Compaction raises the floor first; the look falls between that and the dropping of the record.
TEST_F(LaneTableTest, ARecordBelowTheFloorIsNotRemembered) {
  const Ticket write = lanes_.write("a", 34, 7);
  lanes_.holds = true;
  lanes_.forget_fences();
  const Ticket look = lanes_.write("a", 34);
  lanes_.end(write);
  EXPECT_THAT(lanes_.calls(), ElementsAre("load a", "record a 7"));
  lanes_.store["a"].floor = 40;
  lanes_.answer_all();
  EXPECT_EQ(lanes_.state(look), "stale");
  lanes_.holds = false;
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
}

// 'name waiting/in_flight', and for how long each is quarantined.
std::vector<std::string> lines_of(const LaneDriver& lanes, const FenceListing& listing,
                                  LaneTable::Which which) {
  std::vector<std::string> lines;
  for (const auto& [name, waiting, in_flight, quarantined] : lanes.table.list(listing, which, lanes.now)) {
    lines.push_back(fmt::format("{} {}/{}", name, waiting, in_flight));
    if (quarantined.count() > 0) lines.back() += fmt::format(" {}", quarantined.count());
  }
  return lines;
}

TEST_F(LaneTableTest, BusyWaitingAndClosedLanesAreListedInOrder) {
  const auto all = [&](const FenceListing& listing) {
    return lines_of(lanes_, listing, LaneTable::Which::all);
  };
  (void)begin("a/2", 34);
  (void)lanes_.write("a/2", 35);  // waits for the older one
  (void)begin("b", 7);
  (void)begin("a/1", 1);
  lanes_.end(begin("a/3", 5), Ending::unknown);
  stand("a/4", 9);
  const Ticket read = lanes_.ask(Kind::read, {LaneDriver::claim("a/4", 9)});
  EXPECT_EQ(lanes_.state(read), "entered");
  EXPECT_THAT(all({}), ElementsAre("a/1 0/1", "a/2 1/1", "a/3 0/0 30000", "b 0/1"));
  EXPECT_THAT(all({.prefix = "a/", .after = "a/1", .limit = 1}), ElementsAre("a/2 1/1"));
  EXPECT_THAT(all({.prefix = "a/", .after = "a/2", .limit = 9}), ElementsAre("a/3 0/0 30000"));
  EXPECT_THAT(lines_of(lanes_, {}, LaneTable::Which::quarantined), ElementsAre("a/3 0/0 30000"));
  lanes_.wait(LaneDriver::settle);
  EXPECT_THAT(all({.prefix = "a/3", .after = {}, .limit = 9}), IsEmpty());
}

}  // namespace
}  // namespace fenceguard::test
