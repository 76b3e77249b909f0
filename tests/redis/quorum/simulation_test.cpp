// The rules of the quorum in at least 100,000 random histories. A failing one is told by its seed:
// FENCEGUARD_SEED=N runs that one alone and prints every event of it.

#include "tests/redis/quorum/simulation.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/conformance/scale.hpp"

namespace fenceguard::test {
namespace {

constexpr int histories = 120'000;

std::uint64_t first_seed() {
  const auto seed = (static_cast<std::uint64_t>(std::random_device{}()) << 20) & 0xffff'ffff'ffff;
  std::cout << "seeds from " << seed << " on\n";
  return seed;
}

TEST(QuorumSimulation, InNoHistoryIsANumberGrantedTwiceOrALaterGrantNotHigher) {
  if (const char* seed = std::getenv("FENCEGUARD_SEED")) {
    const auto history = simulate(std::strtoull(seed, nullptr, 10), {}, true);
    std::cout << history.trace;
    EXPECT_EQ(history.violation, "");
    return;
  }
  const auto first = first_seed();
  History sum;
  for (int i = 0; i < scaled(histories); ++i) {
    const auto history = simulate(first + i, {});
    ASSERT_EQ(history.violation, "") << "FENCEGUARD_SEED=" << first + i;
    sum.grants += history.grants;
    sum.tenures_again += history.tenures_again;
    sum.raises += history.raises;
    sum.restored += history.restored;
    sum.draws += history.draws;
  }
  std::cout << scaled(histories) << " histories: " << sum.grants << " grants, " << sum.tenures_again
            << " asked for again, " << sum.raises << " raises (" << sum.restored << " restored nodes), "
            << sum.draws << " draws\n";
  EXPECT_GT(sum.grants, scaled(histories));
  EXPECT_GT(sum.tenures_again, 0);
  EXPECT_GT(sum.raises, 0);
  EXPECT_GT(sum.restored, 0);
  EXPECT_GT(sum.draws, 0);
}

// Histories until one shows the flaw; nothing if none does.
void expect_caught(const char* name, Flaws flaws) {
  const auto first = first_seed();
  for (int i = 0; i < histories; ++i) {
    const auto history = simulate(first + i, flaws);
    if (history.violation.empty()) continue;
    std::cout << name << ": caught in history " << i + 1 << ": " << history.violation << "\n";
    return;
  }
  ADD_FAILURE() << name << ": not caught";
}

TEST(QuorumSimulation, ASecondRoundWithoutStillMineIsCaught) {
  expect_caught("without 'still mine'", {.confirms_without_hold = true});
}

TEST(QuorumSimulation, StillMineWithoutTheNumberAnsweredIsCaught) {
  expect_caught("without the number", {.confirms_without_number = true});
}

}  // namespace
}  // namespace fenceguard::test
