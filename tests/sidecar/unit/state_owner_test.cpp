#include "server/state_owner.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "tests/conformance/temp_dir.hpp"

namespace fenceguard::test {
namespace {

class StateOwnerTest : public testing::Test {
 protected:
  std::unique_ptr<StateOwner> guard(const std::string& machine) {
    return std::make_unique<StateOwner>(folder_.file("state.db"), machine);
  }
  // What a guard sees that comes to the state now.
  std::string owner(const std::string& machine) { return guard(machine)->other_machine(); }

  TempDir folder_;
};

TEST_F(StateOwnerTest, GuardThatEndsSaysSoAndOneThatIsKilledDoesNot) {
  {
    const auto first = guard("a");
    EXPECT_EQ(first->other_machine(), "");
    EXPECT_TRUE(first->take());
    EXPECT_EQ(owner("b"), "a");
    EXPECT_EQ(owner("a"), "");
  }
  EXPECT_EQ(owner("b"), "");
}

// It would leave word that nobody has the state, while the first one, which has a lower number, serves.
TEST_F(StateOwnerTest, SecondGuardTakesNothingBetweenTheFirstsTakeAndStart) {
  const auto first = guard("a");
  EXPECT_EQ(first->other_machine(), "");
  EXPECT_TRUE(first->take());
  {
    const auto second = guard("a");
    EXPECT_EQ(second->other_machine(), "");
    EXPECT_FALSE(second->take());
  }
  EXPECT_EQ(owner("b"), "a");
}

TEST_F(StateOwnerTest, OfTwoGuardsThatSawTheSameOwnerOneBecomesTheNext) {
  const auto first = guard("a"), second = guard("b");
  EXPECT_EQ(first->other_machine(), "");
  EXPECT_EQ(second->other_machine(), "");
  EXPECT_TRUE(second->take());
  EXPECT_FALSE(first->take());
  EXPECT_EQ(first->other_machine(), "b");
}

}  // namespace
}  // namespace fenceguard::test
