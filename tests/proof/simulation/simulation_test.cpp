// Thousands of histories of the real thing, each through the checker, and each seed the same history again.

#include "tests/proof/simulation/simulation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/proof/checker/check.hpp"

namespace fenceguard::proof {
namespace {

// FENCEGUARD_HISTORIES=N: how many.
int histories() {
  const char* text = std::getenv("FENCEGUARD_HISTORIES");
  return text != nullptr ? std::atoi(text) : 10'000;
}

std::uint64_t first_seed() {
  return static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()) * 1'000'000;
}

TEST(Histories, NoneHasAViolation) {
  // FENCEGUARD_SEED=N judges that history alone.
  const char* replayed = std::getenv("FENCEGUARD_SEED");
  const std::uint64_t first = replayed != nullptr ? std::strtoull(replayed, nullptr, 10) : first_seed();
  const int count = replayed != nullptr ? 1 : histories();
  fmt::print("seeds from {}\n", first);
  Counts sum;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    const Simulated simulated = simulate(seed);
    sum.add(simulated.counts);
    ASSERT_EQ(simulated.source_violation, "") << "\nFENCEGUARD_SEED=" << seed << ": source: a number fell";
    const auto violations = check(simulated.history);
    if (violations.empty()) continue;
    for (const auto& resource : simulated.history.resources) {
      if (resource.name == violations[0].resource)
        fmt::print("{}", table_of(prefix_of(resource, violations[0].until), simulated.history.texts));
    }
    FAIL() << "FENCEGUARD_SEED=" << seed << ": " << violations[0].rule << ": " << violations[0].sentence;
  }
  fmt::print(
      "{} histories, {} operations: {} admitted, {} stale, {} unknown, {} late writes, {} take-overs, {} "
      "client crashes, {} guard crashes, {} states lost, {} source faults, {} clock jumps, {} duplicates, "
      "{} conflicts, {} implausible, {} runs done, {} raises\n",
      sum.histories, sum.operations, sum.admitted, sum.refused, sum.unknown, sum.late_writes, sum.takeovers,
      sum.client_crashes, sum.guard_crashes, sum.states_lost, sum.source_faults, sum.clock_jumps,
      sum.duplicates, sum.conflicts, sum.implausible, sum.runs_done, sum.raises);
  if (count < 1'000) return;
  // What was never done was never tested.
  for (const std::int64_t happened :
       {sum.unknown, sum.late_writes, sum.takeovers, sum.client_crashes, sum.guard_crashes, sum.states_lost,
        sum.source_faults, sum.clock_jumps, sum.duplicates, sum.conflicts, sum.implausible, sum.raises})
    EXPECT_GT(happened, 0);
  EXPECT_GT(sum.operations, 150 * sum.histories);
}

TEST(Histories, ASeedIsTheSameHistoryByteForByte) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t seed = first_seed() + i;
    const Simulated once = simulate(seed);
    const Simulated again = simulate(seed);
    ASSERT_EQ(std::hash<std::string>{}(text_of(once.history)),
              std::hash<std::string>{}(text_of(again.history)))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace fenceguard::proof
