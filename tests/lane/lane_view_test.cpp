// What is told of the lanes, and what they are told of operations that are not there.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lane/lane_driver.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(LaneView, AnOperationHasOneClaimAndAWriteMayHaveTwo) {
  LaneDriver lanes;
  const auto a = LaneDriver::claim("a", 1);
  const auto b = LaneDriver::claim("b", 1);
  const std::vector<std::pair<Kind, std::vector<Claim>>> wrong{
      {Kind::write, {}},
      {Kind::write, {a, b, LaneDriver::claim("c", 1)}},
      {Kind::read, {a, b}},
      {Kind::write, {a, LaneDriver::claim("a", 2)}}};
  for (const auto& [kind, claims] : wrong) {
    const Ticket ticket = lanes.ask(kind, claims);
    EXPECT_EQ(lanes.state(ticket), "invalid");
    EXPECT_TRUE(lanes.store.empty());
  }
}

TEST(LaneView, AQuarantineIsToldWithItsTimeAndItsReason) {
  LaneDriver lanes;
  EXPECT_FALSE(lanes.table.quarantine("a", lanes.now));
  lanes.end(lanes.write("a", 1), Ending::unknown);
  lanes.wait(Time{10'000});
  const auto own = lanes.table.quarantine("a", lanes.now);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->kind, FaultKind::unavailable);
  EXPECT_EQ(own->retry_after, LaneDriver::settle - Time{10'000});
  EXPECT_THAT(own->message, HasSubstr("the end of a write on this resource was not seen"));
  EXPECT_FALSE(lanes.table.quarantine("b", lanes.now));

  lanes.table.close_all(lanes.now + LaneDriver::settle);
  for (const auto* name : {"a", "b"}) {
    const auto all = lanes.table.quarantine(name, lanes.now);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->retry_after, LaneDriver::settle);
    EXPECT_THAT(all->message, HasSubstr("every resource is quarantined"));
  }
  lanes.wait(LaneDriver::settle);
  EXPECT_FALSE(lanes.table.quarantine("a", lanes.now));
}

TEST(LaneView, AReadIsToldWhetherItIsStillAdmitted) {
  LaneDriver lanes;
  const Ticket read = lanes.ask(Kind::read, {LaneDriver::claim("a", 1)});
  ASSERT_EQ(lanes.state(read), "entered");
  EXPECT_TRUE(lanes.table.is_read_admitted(read));
  (void)lanes.advance("a", 2);
  EXPECT_FALSE(lanes.table.is_read_admitted(read));
}

TEST(LaneView, OfMoreLanesThanAreAskedForTheFirstByNameAreListed) {
  LaneDriver lanes;
  for (const auto* name : {"c", "a", "d", "b"}) (void)lanes.write(name, 1);
  std::vector<std::string> names;
  for (const auto& view :
       lanes.table.list({.prefix = {}, .after = {}, .limit = 2}, LaneTable::Which::all, lanes.now))
    names.push_back(view.resource);
  EXPECT_THAT(names, ElementsAre("a", "b"));
}

TEST(LaneView, WhatIsToldOfAnOperationThatIsNotThereChangesNothing) {
  LaneDriver lanes;
  const Ticket write = lanes.write("a", 1);
  const Ticket read = lanes.ask(Kind::read, {LaneDriver::claim("a", 1)});
  for (const Ticket ticket : {Ticket{99}, read}) {
    lanes.end(ticket);
    EXPECT_FALSE(lanes.table.end_at_once(ticket));
  }
  for (const Ticket ticket : {Ticket{99}, write}) lanes.end_read(ticket);
  EXPECT_FALSE(lanes.withdraw(99));
  Actions actions;
  lanes.table.recorded(LaneDriver::claim("other", 1, 7), 99, Ruling{}, {lanes.now, actions});
  EXPECT_TRUE(actions.empty());
  EXPECT_EQ(lanes.table.figures().in_flight, 1U);
  lanes.end(write);
  lanes.end_read(read);
  EXPECT_EQ(lanes.table.figures().lanes, 0U);
}

TEST(LaneView, ATokenIsOvertakenByAHigherOneAndByARevoke) {
  LaneDriver lanes;
  const auto is_overtaken = [&](std::int64_t token) {
    return lanes.table.is_overtaken(Resource{"a"}, Token{token});
  };
  EXPECT_FALSE(is_overtaken(1)) << "of a lane that is not there nothing is known";
  (void)lanes.write("a", 2);
  EXPECT_TRUE(is_overtaken(1));
  EXPECT_FALSE(is_overtaken(2));
  (void)lanes.revoke("a");
  EXPECT_TRUE(is_overtaken(2));
  EXPECT_FALSE(is_overtaken(3));
}

TEST(LaneView, AboveAFloorWithoutARecordATokenIsNotOvertaken) {
  LaneDriver lanes;
  lanes.store["a"].floor = 5;
  lanes.holds = true;
  (void)lanes.write("a", 6);
  lanes.answer();
  ASSERT_EQ(lanes.calls(), std::vector<std::string>{"raise a 6"});
  EXPECT_TRUE(lanes.table.is_overtaken(Resource{"a"}, Token{4}));
  EXPECT_FALSE(lanes.table.is_overtaken(Resource{"a"}, Token{6}));
}

TEST(LaneView, IsSettledOnceNothingIsUnderWayClosedOrUnrecorded) {
  LaneDriver lanes;
  EXPECT_TRUE(lanes.table.is_settled(lanes.now));
  const Ticket write = lanes.write("a", 1);
  EXPECT_FALSE(lanes.table.is_settled(lanes.now));
  lanes.end(write, Ending::unknown);
  EXPECT_FALSE(lanes.table.is_settled(lanes.now));
  EXPECT_TRUE(lanes.table.is_settled(lanes.now + LaneDriver::settle))
      << "also before it was told of the time";
  lanes.wait(LaneDriver::settle);
  EXPECT_TRUE(lanes.table.is_settled(lanes.now));

  const Ticket numbered = lanes.write("a", 1, 7);
  lanes.holds = true;
  lanes.end(numbered);
  lanes.answer(Fault{FaultKind::unknown, "the disk is full"});
  lanes.wait(LaneDriver::settle);
  EXPECT_FALSE(lanes.table.is_settled(lanes.now)) << "its sequence is not recorded";
  const auto views =
      lanes.table.list({.prefix = {}, .after = {}, .limit = 9}, LaneTable::Which::quarantined, lanes.now);
  ASSERT_EQ(views.size(), 1U);
  EXPECT_GT(views[0].quarantined.count(), 0);
  lanes.answer();
  EXPECT_TRUE(lanes.table.is_settled(lanes.now));
}

TEST(LaneView, NothingEntersAtOnceInABusyClosedOrDrainingLane) {
  LaneDriver lanes;
  const auto enters = [&](std::int64_t token) {
    const auto highest = lanes.table.enter_at_once(99, Kind::write, LaneDriver::claim("a", token), lanes.now);
    if (highest) {
      EXPECT_TRUE(lanes.table.end_at_once(99));
    }
    return highest.has_value();
  };
  const Ticket older = lanes.write("a", 1);
  EXPECT_TRUE(enters(1));
  lanes.holds = true;
  const Ticket advance = lanes.advance("a", 2);
  EXPECT_FALSE(enters(1)) << "a raise is not durable yet";
  lanes.answer_all();
  ASSERT_EQ(lanes.state(advance), "waiting");
  EXPECT_FALSE(enters(2)) << "an advance waits";
  EXPECT_FALSE(lanes.table.end_at_once(older)) << "it has to be let in";
  EXPECT_TRUE(lanes.withdraw(advance));
  EXPECT_FALSE(enters(2)) << "an older write is under way";
  lanes.end(older, Ending::unknown);
  EXPECT_FALSE(enters(2)) << "it is closed";
  lanes.wait(LaneDriver::settle);
  lanes.holds = false;
  lanes.end(lanes.write("a", 2));
  const Ticket last = lanes.write("a", 2);
  EXPECT_TRUE(enters(2));
  EXPECT_TRUE(lanes.table.end_at_once(last));
}

TEST(LaneView, ARevokeThatIsWithdrawnWhileItsFenceClosesIsNotAnswered) {
  LaneDriver lanes;
  (void)lanes.write("a", 1);
  lanes.holds = true;
  const Ticket revoke = lanes.revoke("a");
  EXPECT_TRUE(lanes.withdraw(revoke));
  lanes.answer();
  EXPECT_EQ(lanes.state(revoke), "withdrawn");
  EXPECT_EQ(lanes.table.figures().waiting, 0U);
}

TEST(LaneView, AnIdleCrowdLeavesNoLane) {
  LaneDriver lanes{{LaneDriver::settle, 1'000, 10'000, 0}};
  std::vector<Ticket> writes;
  for (int i = 0; i < 1'100; ++i) writes.push_back(lanes.write(fmt::format("a/{}", i), 1));
  EXPECT_EQ(lanes.table.figures().lanes, 1'100U);
  for (const Ticket write : writes) lanes.end(write);
  EXPECT_EQ(lanes.table.figures().lanes, 0U);
}

}  // namespace
}  // namespace fenceguard::test
