// The rule of the lane where several writes belong together: sequences, pairs, queues and their limits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/lane/lane_driver.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;
using testing::ElementsAre;
using testing::IsEmpty;

class LaneOrder : public testing::Test {
 protected:
  void stand(const std::string& resource, std::int64_t token) { lanes_.end(lanes_.write(resource, token)); }
  Ticket pair(const std::string& first, std::int64_t first_token, const std::string& second,
              std::int64_t second_token) {
    return lanes_.ask(Kind::write,
                      {LaneDriver::claim(first, first_token), LaneDriver::claim(second, second_token)});
  }

  LaneDriver lanes_;
};

TEST_F(LaneOrder, SequencedWritesFollowEachOtherAndOthersRunBeside) {
  const Ticket first = lanes_.write("a", 34, 1);
  const Ticket second = lanes_.write("a", 34, 2);
  const Ticket beside = lanes_.write("a", 34);
  EXPECT_EQ(lanes_.state(first), "entered");
  EXPECT_EQ(lanes_.state(second), "waiting");
  EXPECT_EQ(lanes_.state(beside), "entered");
  lanes_.end(first);
  EXPECT_EQ(lanes_.state(second), "entered");
  EXPECT_EQ(lanes_.store["a"].record->sequence, Sequence{1});
}

TEST_F(LaneOrder, TheClientIsToldWhenItsSequenceIsDurable) {
  const Ticket write = lanes_.write("a", 34, 1);
  lanes_.holds = true;
  lanes_.end(write);
  EXPECT_THAT(lanes_.calls(), ElementsAre("record a 1"));
  EXPECT_EQ(lanes_.state(write), "entered");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "left");
}

TEST_F(LaneOrder, ADuplicateWaitsForTheFirstAndIsThenToldThatItTookEffect) {
  const Ticket first = lanes_.write("a", 34, 7);
  const Ticket twice = lanes_.write("a", 34, 7);
  const Ticket next = lanes_.write("a", 34, 8);
  EXPECT_EQ(lanes_.state(twice), "waiting");
  lanes_.end(first);
  EXPECT_EQ(lanes_.state(twice), "duplicate");
  EXPECT_EQ(lanes_.state(next), "entered");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, 7)), "duplicate");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, 6)), "stale") << "overtaken";
}

class NothingWritten : public LaneOrder, public testing::WithParamInterface<Ending> {};

TEST_P(NothingWritten, LeavesTheSequenceFree) {
  const Ticket first = lanes_.write("a", 34, 7);
  const Ticket twice = lanes_.write("a", 34, 7);
  lanes_.end(first, GetParam());
  EXPECT_EQ(lanes_.state(first), "left");
  EXPECT_EQ(lanes_.state(twice), "entered");
  EXPECT_FALSE(lanes_.store["a"].record->sequence);
}

INSTANTIATE_TEST_SUITE_P(Endings, NothingWritten, testing::Values(Ending::refused, Ending::unsent));

TEST_F(LaneOrder, ADuplicateOfAWriteOfUnknownOutcomeIsNeitherDoneNorRefused) {
  const Ticket first = lanes_.write("a", 34, 7);
  const Ticket twice = lanes_.write("a", 34, 7);
  lanes_.end(first, Ending::unknown);
  EXPECT_EQ(lanes_.state(twice), "unavailable");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, 7)), "unavailable");
}

TEST_F(LaneOrder, ASequenceThatCannotBeRecordedKeepsTheResourceClosedUntilItIs) {
  const Ticket write = lanes_.write("a", 34, 7);
  const Ticket waiting = lanes_.write("a", 34, 8);
  lanes_.holds = true;
  lanes_.end(write);
  lanes_.answer(Fault{FaultKind::unavailable, "disk full"}, false);
  EXPECT_EQ(lanes_.state(write), "left");
  EXPECT_EQ(lanes_.fault(write).kind, FaultKind::unknown);
  EXPECT_EQ(lanes_.state(waiting), "unavailable");
  lanes_.wait(LaneDriver::settle);
  EXPECT_THAT(lanes_.calls(), ElementsAre("record a 7"));
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, 7)), "unavailable");
  lanes_.answer(Fault{FaultKind::unavailable, "disk full"}, false);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, 7)), "unavailable");
  lanes_.holds = false;
  lanes_.wait(LaneDriver::settle);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, 7)), "duplicate");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, 8)), "entered");
}

// The first repetition hangs while another write of the lane ends unseen, and settles too.
TEST_F(LaneOrder, ASequenceIsRecordedAgainByOneCallAtATime) {
  const Ticket write = lanes_.write("a", 34, 7);
  const Ticket other = lanes_.write("a", 34);
  lanes_.holds = true;
  lanes_.end(write);
  lanes_.answer(Fault{FaultKind::unavailable, "disk full"}, false);
  lanes_.wait(LaneDriver::settle);
  lanes_.end(other, Ending::unknown);
  lanes_.wait(LaneDriver::settle);
  EXPECT_THAT(lanes_.calls(), ElementsAre("record a 7"));
  EXPECT_FALSE(lanes_.table.is_settled(lanes_.now)) << "not recorded, however long ago";
  lanes_.answer_all();
  EXPECT_TRUE(lanes_.table.is_settled(lanes_.now));
  EXPECT_EQ(lanes_.table.figures().lanes, 0u);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34, 7)), "duplicate");
}

// One lane's record fails, and is repeated before the store has answered for the other.
TEST_F(LaneOrder, APairWaitsForTheRecordsOfBothLanes) {
  const Ticket write =
      lanes_.ask(Kind::write, {LaneDriver::claim("a", 34, 7), LaneDriver::claim("b", 34, 7)});
  lanes_.holds = true;
  lanes_.end(write);
  EXPECT_THAT(lanes_.calls(), ElementsAre("record a 7", "record b 7"));
  lanes_.answer(Fault{FaultKind::unavailable, "disk full"}, false);
  lanes_.wait(LaneDriver::settle);
  EXPECT_THAT(lanes_.calls(), ElementsAre("record b 7", "record a 7"));
  lanes_.answer_last();
  EXPECT_EQ(lanes_.state(write), "entered");
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "left");
  EXPECT_EQ(lanes_.fault(write).kind, FaultKind::unknown);
  EXPECT_EQ(lanes_.table.figures().lanes, 0u);
}

TEST_F(LaneOrder, ASequenceBelowAFenceThatRoseMeanwhileNeedsNoRecord) {
  const Ticket write = lanes_.write("a", 34, 7);
  const Ticket next = lanes_.write("a", 35, 1);
  lanes_.holds = true;
  lanes_.end(write);
  EXPECT_THAT(lanes_.calls(), IsEmpty());
  EXPECT_EQ(lanes_.state(write), "left");
  EXPECT_EQ(lanes_.state(next), "entered");
}

TEST_F(LaneOrder, ARecordThatARaiseOvertookIsNoFault) {
  const Ticket write = lanes_.write("a", 34, 7);
  lanes_.holds = true;
  const Ticket next = lanes_.write("a", 35);
  lanes_.end(write);
  EXPECT_THAT(lanes_.calls(), ElementsAre("raise a 35", "record a 7"));
  lanes_.answer();
  EXPECT_EQ(lanes_.state(next), "waiting") << "the older write is not known to be over";
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "left");
  EXPECT_EQ(lanes_.state(next), "entered");
  EXPECT_EQ(lanes_.store["a"].highest(), 35);
}

TEST_F(LaneOrder, BothClaimsAreJudgedBeforeEitherMovesAFence) {
  stand("a", 34);
  stand("b", 50);
  const Ticket write = pair("a", 40, "b", 49);
  EXPECT_EQ(lanes_.state(write), "stale");
  EXPECT_EQ(lanes_.refusal(write).claim, 1u);
  EXPECT_EQ(lanes_.store["a"].highest(), 34);
  const Ticket rejection = pair("b", 49, "a", 40);
  EXPECT_EQ(lanes_.refusal(rejection).claim, 0u) << "as asked, whatever the order of the lanes";
}

TEST_F(LaneOrder, TwoResourcesAreEnteredAtOneInstantOrNotAtAll) {
  const Ticket in_a = lanes_.write("a", 34);
  const Ticket in_b = lanes_.write("b", 34);
  const Ticket both = pair("b", 35, "a", 36);
  lanes_.end(in_a);
  EXPECT_EQ(lanes_.state(both), "waiting");
  EXPECT_EQ(lanes_.table.figures().in_flight, 1u);
  lanes_.end(in_b);
  EXPECT_EQ(lanes_.state(both), "entered");
  EXPECT_EQ(lanes_.entry(both).rulings.at(0).highest, 35);
  EXPECT_EQ(lanes_.entry(both).rulings.at(1).highest, 36);
  const Ticket next_a = lanes_.write("a", 37);
  const Ticket next_b = lanes_.write("b", 37);
  EXPECT_EQ(lanes_.state(next_a), "waiting");
  EXPECT_EQ(lanes_.state(next_b), "waiting");
  lanes_.end(both);
  EXPECT_EQ(lanes_.state(next_a), "entered");
  EXPECT_EQ(lanes_.state(next_b), "entered");
}

TEST_F(LaneOrder, AnUnknownOutcomeOfAPairClosesBoth) {
  lanes_.end(pair("a", 34, "b", 34), Ending::unknown);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "unavailable");
  EXPECT_EQ(lanes_.state(lanes_.write("b", 34)), "unavailable");
}

TEST_F(LaneOrder, APairIsKeptOutIfEitherResourceIsClosed) {
  lanes_.end(lanes_.write("b", 34), Ending::unknown);
  EXPECT_EQ(lanes_.state(pair("a", 34, "b", 34)), "unavailable");
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "entered");
}

TEST_F(LaneOrder, AWaitingPairIsRefusedWhenOneOfItsFencesRises) {
  const Ticket old = lanes_.write("b", 34);
  const Ticket both = pair("a", 35, "b", 35);
  const Ticket newer = lanes_.write("a", 36);
  EXPECT_EQ(lanes_.state(both), "stale");
  EXPECT_EQ(lanes_.state(newer), "entered");
  lanes_.end(old);
  EXPECT_EQ(lanes_.table.figures().waiting, 0u);
}

// Every order in which the store may answer; each pair comes to an end.
TEST_F(LaneOrder, CrossingPairsNeverWaitForEachOther) {
  std::vector<int> order{0, 1, 2, 3};
  do {
    LaneDriver lanes;
    lanes.holds = true;
    std::vector<Ticket> tickets;
    for (const int which : order) {
      const int token = 34 + which;
      auto first = LaneDriver::claim("a", token);
      auto second = LaneDriver::claim("b", token);
      if (which % 2 == 1) std::swap(first, second);
      tickets.push_back(lanes.ask(Kind::write, {first, second}));
      if (which == 2) lanes.answer();
    }
    lanes.holds = false;
    lanes.answer_all();
    for (int round = 0; round < 4; ++round) {
      for (const Ticket ticket : tickets) {
        if (lanes.state(ticket) == "entered") lanes.end(ticket);
      }
    }
    for (const Ticket ticket : tickets) EXPECT_NE(lanes.state(ticket), "waiting");
    EXPECT_EQ(
        lanes.state(
            tickets[static_cast<std::size_t>(std::find(order.begin(), order.end(), 3) - order.begin())]),
        "left")
        << "the highest";
    EXPECT_EQ(lanes.table.figures().lanes, 0u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(LaneOrder, CrossingPairsWithSequencesFollowEachOther) {
  const auto ask = [&](const std::string& first, const std::string& second, int sequence) {
    return lanes_.ask(Kind::write,
                      {LaneDriver::claim(first, 34, sequence), LaneDriver::claim(second, 34, sequence)});
  };
  const Ticket one = ask("a", "b", 1);
  const Ticket two = ask("b", "a", 2);
  const Ticket three = ask("a", "b", 3);
  EXPECT_EQ(lanes_.state(two), "waiting");
  lanes_.end(one);
  EXPECT_EQ(lanes_.state(two), "entered");
  lanes_.end(two, Ending::refused);
  EXPECT_EQ(lanes_.state(three), "entered");
}

TEST_F(LaneOrder, OneResourceGivenTwiceIsOneClaimIfBothAgree) {
  const Ticket write = pair("a", 34, "a", 34);
  EXPECT_EQ(lanes_.state(write), "entered");
  EXPECT_EQ(lanes_.entry(write).rulings.size(), 2u);
  lanes_.end(write);
  const Ticket again = pair("a", 34, "a", 34);
  EXPECT_EQ(lanes_.entry(again).rulings.size(), 2u);
  EXPECT_EQ(lanes_.state(pair("a", 35, "a", 36)), "invalid");
  EXPECT_EQ(lanes_.store["a"].highest(), 34);
}

TEST_F(LaneOrder, WaitersAreAdmittedInFifoOrder) {
  const Ticket old = lanes_.write("a", 34);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 5; ++i) tickets.push_back(lanes_.write("a", 35));
  lanes_.end(old);
  EXPECT_THAT(lanes_.entered(), ElementsAre(old, tickets[0], tickets[1], tickets[2], tickets[3], tickets[4]));
}

// Writes under the old token come and come, each before the last is over.
TEST_F(LaneOrder, AStreamOfOlderWritesDoesNotStarveAnAdvance) {
  Ticket last = lanes_.write("a", 34);
  const Ticket advance = lanes_.advance("a", 35);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
  lanes_.end(last);
  EXPECT_EQ(lanes_.state(advance), "entered");
}

TEST_F(LaneOrder, BeyondTheLimitOfAResourceAClaimIsToldToComeBack) {
  LaneDriver lanes{{LaneDriver::settle, 3, 100, 100}};
  const Ticket old = lanes.write("a", 34);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(lanes.write("a", 35));
  const Ticket beyond = lanes.write("a", 35);
  EXPECT_EQ(lanes.state(beyond), "unavailable");
  EXPECT_EQ(lanes.fault(beyond).retry_after, Time{1'000});
  EXPECT_EQ(lanes.state(lanes.write("a", 34)), "stale") << "a refusal needs no place";
  EXPECT_EQ(lanes.state(lanes.write("b", 35)), "entered");
  const Ticket newer = lanes.write("a", 36);
  EXPECT_EQ(lanes.state(newer), "waiting") << "it refuses those who wait, and takes a place of theirs";
  EXPECT_EQ(lanes.table.figures().waiting, 1u);
  lanes.end(old);
  EXPECT_EQ(lanes.state(newer), "entered");
}

TEST_F(LaneOrder, BehindARaiseTheLimitHoldsToo) {
  LaneDriver lanes{{LaneDriver::settle, 3, 100, 100}};
  lanes.holds = true;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lanes.state(lanes.write("a", 35)), "waiting");
  EXPECT_EQ(lanes.state(lanes.write("a", 35)), "unavailable");
}

TEST_F(LaneOrder, BeyondTheLimitOfAllLanesAClaimIsToldToComeBack) {
  LaneDriver lanes{{LaneDriver::settle, 100, 3, 100}};
  lanes.end(lanes.write("free", 34));
  for (const char* name : {"a", "b", "c"}) {
    (void)lanes.write(name, 34);
    EXPECT_EQ(lanes.state(lanes.write(name, 35)), "waiting");
  }
  (void)lanes.write("free", 34);
  EXPECT_EQ(lanes.state(lanes.write("a", 35)), "unavailable");
  EXPECT_EQ(lanes.state(lanes.write("free", 34)), "entered") << "who need not wait needs no place";
}

TEST_F(LaneOrder, AnIdleResourceCostsNothing) {
  for (int i = 0; i < 1'000; ++i) stand("r/" + std::to_string(i), 34);
  EXPECT_EQ(lanes_.table.figures().lanes, 0u);
  lanes_.end(lanes_.write("a", 34), Ending::unknown);
  EXPECT_EQ(lanes_.table.figures().lanes, 1u);
  EXPECT_EQ(lanes_.table.figures().closed, 1u);
  EXPECT_EQ(lanes_.table.due(), lanes_.now + LaneDriver::settle);
  lanes_.wait(LaneDriver::settle);
  EXPECT_EQ(lanes_.table.figures().lanes, 0u);
  EXPECT_EQ(lanes_.table.figures().closed, 0u);
  EXPECT_FALSE(lanes_.table.due());
}

TEST_F(LaneOrder, AForgottenFenceIsLookedUpAgain) {
  stand("a", 34);
  const Ticket in_flight = lanes_.write("b", 34);
  lanes_.store["a"] = {std::nullopt, 50};
  lanes_.store["b"] = {std::nullopt, 50};
  lanes_.forget_fences();
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
  EXPECT_EQ(lanes_.state(lanes_.write("b", 34)), "stale");
  const Ticket next = lanes_.write("b", 51);
  EXPECT_EQ(lanes_.state(next), "waiting");
  lanes_.end(in_flight);
  EXPECT_EQ(lanes_.state(next), "entered");
}

TEST_F(LaneOrder, ADuplicateIsNotLetInBecauseTheStoreNoLongerKnowsItsToken) {
  const Ticket first = lanes_.write("a", 34, 7);
  const Ticket twice = lanes_.write("a", 34, 7);
  lanes_.store["a"] = {std::nullopt, 34};
  lanes_.forget_fences();
  lanes_.end(first);
  EXPECT_EQ(lanes_.state(first), "left");
  EXPECT_EQ(lanes_.state(twice), "stale");
}

TEST_F(LaneOrder, ARecordThatWasFoldedIntoAFloorOfItsOwnHeightIsRefused) {
  const Ticket in_flight = lanes_.write("a", 34);
  lanes_.store["a"] = {std::nullopt, 34};
  lanes_.forget_fences();
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
  lanes_.end(in_flight);
  EXPECT_EQ(lanes_.state(lanes_.write("a", 34)), "stale");
}

// The store was asked before, and answers after, everything was to be forgotten.
TEST_F(LaneOrder, AnAnswerFromBeforeTheForgettingIsNotBelieved) {
  stand("a", 34);
  lanes_.forget_fences();
  lanes_.holds = true;
  const Ticket write = lanes_.write("a", 34);
  EXPECT_THAT(lanes_.calls(), ElementsAre("load a"));
  lanes_.forget_fences();
  lanes_.answer();
  EXPECT_THAT(lanes_.calls(), ElementsAre("load a"));
  EXPECT_EQ(lanes_.state(write), "waiting");
  lanes_.store["a"] = {std::nullopt, 50};
  lanes_.answer();
  EXPECT_EQ(lanes_.state(write), "stale");
}

}  // namespace
}  // namespace fenceguard::test
