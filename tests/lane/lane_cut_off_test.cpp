// The rule of the lane for those who are cut off from outside: by a revoke, or by a floor that was raised.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lane/lane_driver.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;
using testing::ElementsAre;
using testing::IsEmpty;

class LaneCutOff : public testing::Test {
 protected:
  // The write of a token is under way.
  Ticket begin(const std::string& resource, std::int64_t token) {
    const Ticket ticket = lanes_.write(resource, token);
    EXPECT_EQ(lanes_.state(ticket), "entered");
    return ticket;
  }
  void raise_floor(std::int64_t floor) {
    for (auto& [resource, view] : lanes_.store) view.floor = std::max(view.floor, floor);
    lanes_.forget_fences();
  }

  LaneDriver lanes_;
};

TEST_F(LaneCutOff, AWriteUnderTheTokenThatARevokeClosedIsOvertaken) {
  const Ticket write = begin("a", 34);
  EXPECT_FALSE(lanes_.table.is_overtaken(Resource{"a"}, Token{34}));
  const Ticket revoke = lanes_.revoke("a");
  EXPECT_EQ(lanes_.state(revoke), "waiting");
  EXPECT_TRUE(lanes_.table.is_overtaken(Resource{"a"}, Token{34}));
  lanes_.end(write, Ending::refused);
  EXPECT_EQ(lanes_.state(revoke), "entered");
  const Ticket next = begin("a", 35);
  EXPECT_FALSE(lanes_.table.is_overtaken(Resource{"a"}, Token{35}));
  lanes_.end(next);
}

// Its lane stands until it is over, although nothing else remembers a fence here.
TEST(LaneReads, AReadIsOvertakenByANewerTokenWhichDoesNotWaitForIt) {
  LaneDriver lanes{{LaneDriver::settle, 1'000, 10'000, 0}};
  lanes.end(lanes.write("a", 33));
  const Ticket read = lanes.ask(Kind::read, {LaneDriver::claim("a", 34)});
  ASSERT_EQ(lanes.state(read), "entered");
  EXPECT_EQ(lanes.table.judge_read(read).verdict, Verdict::admitted);
  lanes.end(lanes.write("a", 34));
  EXPECT_EQ(lanes.table.judge_read(read).verdict, Verdict::admitted);
  const Ticket newer = lanes.write("a", 35);
  EXPECT_EQ(lanes.state(newer), "entered");
  lanes.end(newer);
  EXPECT_EQ(lanes.table.judge_read(read).verdict, Verdict::stale);
  EXPECT_EQ(lanes.table.judge_read(read).highest, 35);
  EXPECT_EQ(lanes.table.figures().lanes, 1U);
  lanes.end_read(read);
  EXPECT_EQ(lanes.table.figures().lanes, 0U);
}

TEST(LaneReads, AReadThatHadToWaitIsJudgedAgainAsWell) {
  LaneDriver lanes;
  const Ticket old = lanes.write("a", 33);
  const Ticket read = lanes.ask(Kind::read, {LaneDriver::claim("a", 34)});
  EXPECT_EQ(lanes.state(read), "waiting");
  lanes.end(old);
  ASSERT_EQ(lanes.state(read), "entered");
  lanes.end(lanes.revoke("a"));
  EXPECT_EQ(lanes.table.judge_read(read).verdict, Verdict::stale) << "closed";
  lanes.end_read(read);
  EXPECT_EQ(lanes.table.figures().lanes, 0U);
}

TEST_F(LaneCutOff, WaitersAreJudgedByTheRaisedFloor) {
  const Ticket old = begin("a", 33);
  const Ticket waiting = lanes_.write("a", 34);
  EXPECT_EQ(lanes_.state(waiting), "waiting");
  raise_floor(100);
  lanes_.end(old);
  EXPECT_EQ(lanes_.state(waiting), "stale");
  EXPECT_EQ(lanes_.refusal(waiting).ruling.highest, 100);
  lanes_.end(begin("a", 101));
  EXPECT_EQ(lanes_.table.figures().lanes, 0U);
}

TEST_F(LaneCutOff, WaitersAreAdmittedOnlyAfterTheStoreWasAskedAgain) {
  const Ticket old = begin("a", 33);
  const Ticket waiting = lanes_.write("a", 34);
  lanes_.holds = true;
  raise_floor(100);
  lanes_.end(old);
  EXPECT_EQ(lanes_.state(waiting), "waiting");
  EXPECT_THAT(lanes_.calls(), ElementsAre("load a"));
  lanes_.answer_all();
  EXPECT_EQ(lanes_.state(waiting), "stale");
}

TEST_F(LaneCutOff, APairThatWaitsForOneOfItsLanesIsJudgedAgainInBoth) {
  const Ticket old = begin("b", 33);
  lanes_.end(begin("a", 33));
  const Ticket pair = lanes_.ask(Kind::write, {LaneDriver::claim("b", 34), LaneDriver::claim("a", 34)});
  EXPECT_EQ(lanes_.state(pair), "waiting");
  lanes_.store["a"].floor = 100;
  lanes_.forget_fences();
  lanes_.end(old);
  EXPECT_EQ(lanes_.state(pair), "stale");
  EXPECT_EQ(lanes_.refusal(pair).claim, 1U);
  EXPECT_EQ(lanes_.table.figures().waiting, 0U);
}

TEST_F(LaneCutOff, WaitersAboveNewFloorKeepFifoOrder) {
  const Ticket old = begin("a", 33);
  const Ticket first = lanes_.write("a", 34, 1);
  const Ticket second = lanes_.write("a", 34, 2);
  const Ticket pair = lanes_.ask(Kind::write, {LaneDriver::claim("a", 34, 3), LaneDriver::claim("b", 34)});
  lanes_.holds = true;
  const Ticket late = lanes_.write("a", 35);  // is being raised
  const Ticket behind = lanes_.write("a", 35);
  lanes_.forget_fences();
  EXPECT_THAT(lanes_.calls(), ElementsAre("raise a 35"));
  lanes_.answer_all();
  for (const Ticket stale : {first, second, pair}) EXPECT_EQ(lanes_.state(stale), "stale");
  lanes_.holds = false;
  const Ticket sequence_1 = lanes_.write("a", 35, 1);
  const Ticket sequence_2 = lanes_.write("a", 35, 2);
  lanes_.forget_fences();
  lanes_.end(old);
  for (const Ticket entered : {late, behind, sequence_1}) EXPECT_EQ(lanes_.state(entered), "entered");
  EXPECT_EQ(lanes_.state(sequence_2), "waiting");
  lanes_.end(sequence_1);
  EXPECT_EQ(lanes_.state(sequence_2), "entered");
}

// Two lanes that are decided on while their waiting pairs cross: none may wait for the other.
TEST_F(LaneCutOff, PairsThatCrossAreAllAnsweredAfterTheForgetting) {
  const Ticket on_a = begin("a", 33);
  const Ticket on_b = begin("b", 33);
  const Ticket one = lanes_.ask(Kind::write, {LaneDriver::claim("a", 34), LaneDriver::claim("b", 34)});
  const Ticket two = lanes_.ask(Kind::write, {LaneDriver::claim("b", 34), LaneDriver::claim("a", 34)});
  const Ticket single = lanes_.write("b", 34);
  lanes_.holds = true;
  lanes_.forget_fences();
  lanes_.forget_fences();
  lanes_.end(on_b);
  lanes_.end(on_a);
  EXPECT_TRUE(lanes_.withdraw(two));
  lanes_.holds = false;
  lanes_.answer_all();
  EXPECT_EQ(lanes_.state(one), "entered");
  EXPECT_EQ(lanes_.state(single), "entered");
  lanes_.end(one);
  lanes_.end(single);
  EXPECT_EQ(lanes_.table.figures().lanes, 0U);
  EXPECT_THAT(lanes_.calls(), IsEmpty());
}

// An advance has more room to wait in than a write; what has its room keeps it.
TEST(LaneCutOffRoom, AWaiterKeepsItsRoom) {
  LaneDriver lanes{{LaneDriver::settle, 2, 100, 100}};
  const Ticket old = lanes.write("a", 33);
  const Ticket write = lanes.write("a", 34);
  const Ticket advance_1 = lanes.advance("a", 34);
  const Ticket advance_2 = lanes.advance("a", 34);
  lanes.forget_fences();
  lanes.end(old);
  for (const Ticket entered : {write, advance_1, advance_2}) EXPECT_EQ(lanes.state(entered), "entered");
}

}  // namespace
}  // namespace fenceguard::test
