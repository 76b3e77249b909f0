// Thousands of histories of the lane, and some in which one part of the rule is missing: those must be
// caught.

#include "tests/lane/lane_simulation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/conformance/scale.hpp"

namespace fenceguard::test {
namespace {

using Settings = LaneSimulation::Settings;

constexpr int rounds = 3'000;

unsigned first_seed() {
  return static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed()) * 100'000U;
}

// FENCEGUARD_SEED=N runs that history alone.
std::optional<unsigned> replayed_seed() {
  const char* text = std::getenv("FENCEGUARD_SEED");
  if (text == nullptr) return std::nullopt;
  return static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

// How many of the histories were found to violate something.
int violations(Settings settings, int count) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    settings.seed = first_seed() + static_cast<unsigned>(i);
    found += LaneSimulation{settings}.run().empty() ? 0 : 1;
  }
  return found;
}

TEST(LaneHistories, TokensRiseWritesStayAndEveryLaneOpensAgain) {
  const auto replayed = replayed_seed();
  const unsigned first = replayed.value_or(first_seed());
  fmt::print("seeds from {}\n", first);
  LaneSimulation::Counts sum;
  for (unsigned i = 0; i < (replayed ? 1U : static_cast<unsigned>(scaled(rounds))); ++i) {
    Settings settings;
    settings.seed = first + i;
    LaneSimulation simulation{settings};
    ASSERT_EQ(simulation.run(), "") << "again with FENCEGUARD_SEED=" << settings.seed;
    const auto& counts = simulation.counts();
    sum.entered += counts.entered;
    sum.applied += counts.applied;
    sum.applied_late += counts.applied_late;
    sum.unknown += counts.unknown;
    sum.waited += counts.waited;
    sum.crashes += counts.crashes;
    sum.duplicates += counts.duplicates;
    sum.reads += counts.reads;
    sum.overtaken_reads += counts.overtaken_reads;
    sum.entered_at_once += counts.entered_at_once;
    sum.ended_at_once += counts.ended_at_once;
  }
  fmt::print(
      "entered {} (waited {}), applied {} (late {}), unknown {}, crashes {}, duplicates {}, reads {} "
      "(overtaken "
      "{}), at once {} (ended {})\n",
      sum.entered, sum.waited, sum.applied, sum.applied_late, sum.unknown, sum.crashes, sum.duplicates,
      sum.reads, sum.overtaken_reads, sum.entered_at_once, sum.ended_at_once);
  if (replayed) return;
  EXPECT_GT(sum.entered_at_once, 0);
  EXPECT_GT(sum.ended_at_once, 0);
  EXPECT_GT(sum.applied_late, 0);
  EXPECT_GT(sum.unknown, 0);
  EXPECT_GT(sum.waited, 0);
  EXPECT_GT(sum.crashes, 0);
  EXPECT_GT(sum.duplicates, 0);
  EXPECT_GT(sum.reads, 0);
  EXPECT_GT(sum.overtaken_reads, 0);
}

TEST(LaneHistories, NobodyGoesOnBeforeTheOneBeforeWasCutOff) {
  const auto replayed = replayed_seed();
  const unsigned first = replayed.value_or(first_seed());
  int cut_off = 0;
  for (unsigned i = 0; i < (replayed ? 1U : static_cast<unsigned>(scaled(rounds))); ++i) {
    Settings settings;
    settings.seed = first + i;
    settings.cuts_off = true;
    LaneSimulation simulation{settings};
    ASSERT_EQ(simulation.run(), "") << "again with FENCEGUARD_SEED=" << settings.seed;
    cut_off += simulation.counts().cut_off;
  }
  fmt::print("cut off {}\n", cut_off);
  EXPECT_GT(cut_off, 0);
}

TEST(LaneHistories, AStateThatForgetsWhatIsOwedIsCaught) {
  Settings settings;
  settings.cuts_off = true;
  settings.keeps_pending = false;
  EXPECT_GT(violations(settings, scaled(400)), 0) << "seeds from " << first_seed();
}

TEST(LaneHistories, OneSeedIsOneHistory) {
  Settings settings;
  settings.settle = proxy::Time{0};
  for (unsigned i = 0; i < 20; ++i) {
    settings.seed = first_seed() + i;
    LaneSimulation once{settings};
    LaneSimulation again{settings};
    EXPECT_EQ(once.run(), again.run());
    EXPECT_EQ(once.counts().applied, again.counts().applied);
  }
}

TEST(LaneHistories, WithoutASettleTimeTheFaultIsCaught) {
  Settings settings;
  settings.settle = proxy::Time{0};
  EXPECT_GT(violations(settings, scaled(400)), 0) << "seeds from " << first_seed();
}

TEST(LaneHistories, ASettleTimeShorterThanTheUpstreamsIsCaught) {
  Settings settings;
  settings.settle = proxy::Time{40};
  EXPECT_GT(violations(settings, scaled(400)), 0) << "seeds from " << first_seed();
}

TEST(LaneHistories, AnUnknownWriteTreatedAsRefusedIsCaught) {
  Settings settings;
  settings.tells_unknown = false;
  EXPECT_GT(violations(settings, scaled(400)), 0) << "seeds from " << first_seed();
}

TEST(LaneHistories, AReadThatIsJudgedBeforeItsAnswerComesAloneIsCaught) {
  Settings settings;
  settings.judges_reads_again = false;
  EXPECT_GT(violations(settings, scaled(400)), 0) << "seeds from " << first_seed();
}

TEST(LaneHistories, AGuardThatForgetsAtItsRestartIsCaught) {
  Settings settings;
  settings.closes_at_restart = false;
  EXPECT_GT(violations(settings, scaled(400)), 0) << "seeds from " << first_seed();
}

}  // namespace
}  // namespace fenceguard::test
