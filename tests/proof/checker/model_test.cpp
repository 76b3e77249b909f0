// The model answers every line of the shared table as the product does. It is the only place in which the two
// meet.

#include "tests/proof/checker/model.hpp"

#include <gtest/gtest.h>

#include "tests/judge_cases.hpp"

namespace fenceguard::proof {
namespace {

void put(State& state, Texts& texts, const std::optional<fenceguard::Fence>& record) {
  if (!record) return;
  state.token = record->token.value();
  state.holder = texts.id(record->holder.id());
  state.sequence = record->sequence ? record->sequence->value() : -1;
  state.is_closed = record->closed;
}

TEST(Model, AnswersEveryCaseOfTheSharedTable) {
  const auto cases = test::judge_cases();
  ASSERT_GT(cases.size(), 150U);
  for (const auto& line : cases) {
    Texts texts;
    State state, expected;
    put(state, texts, line.view.record);
    state.floor = expected.floor = line.view.floor;
    put(expected, texts, line.after);
    const ModelClaim claim{line.token.value(), texts.id(line.holder.id()),
                           line.sequence ? line.sequence->value() : -1};
    const Verdict verdict = judge(state, claim);
    EXPECT_EQ(static_cast<int>(verdict), static_cast<int>(line.verdict)) << "line " << line.line;
    if (verdict == Verdict::admitted) take(state, claim);
    EXPECT_EQ(state, expected) << "line " << line.line;
  }
}

TEST(Model, AdmittedWriteLandsAfterTheFenceRoseUntilANewerAdmission) {
  State state;
  land(state, {5, 1, -1}, 10, true);
  raise(state, {7, 2, -1}, 100);
  EXPECT_TRUE(may_land(state, {5, 1, -1}, 100));
  EXPECT_FALSE(may_land(state, {5, 1, -1}, 101)) << "asked after the fence had risen";
  EXPECT_FALSE(may_land(state, {4, 1, -1}, 50)) << "5 was admitted before";
  land(state, {5, 1, -1}, 11, true);
  EXPECT_EQ(state.token, 7);
  EXPECT_EQ(state.value, 11U);
  settle(state, 7);
  EXPECT_FALSE(may_land(state, {5, 1, -1}, 50));
  EXPECT_TRUE(state.passed.empty());
}

TEST(Model, AClosedFenceLetsLandWhatWasLetInBeforeUnderItsOwnToken) {
  State state;
  land(state, {5, 1, -1}, 10, true);
  close(state, 100);
  EXPECT_TRUE(may_land(state, {5, 1, -1}, 90));
  EXPECT_FALSE(may_land(state, {5, 2, -1}, 90)) << "another holder's";
  EXPECT_FALSE(may_land(state, {5, 1, -1}, 110));
}

}  // namespace
}  // namespace fenceguard::proof
