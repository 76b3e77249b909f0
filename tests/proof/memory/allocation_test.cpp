// No memory is left at the first allocation of the rule, the LaneTable and the LeaseQueue, at the second, ...
// until a run passes. The rule leaves everything as it was; a guard dies of it, as it does in the product,
// and no history of its clients may have a violation.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "guard/judge.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/proof/checker/check.hpp"
#include "tests/proof/memory/memory.hpp"
#include "tests/proof/simulation/simulation.hpp"

void* operator new(std::size_t size) {
  if (fenceguard::proof::Memory::note_allocation()) throw std::bad_alloc{};
  if (void* made = std::malloc(size > 0 ? size : 1)) return made;
  throw std::bad_alloc{};
}
void operator delete(void* gone) noexcept {
  std::free(gone);
}
void operator delete(void* gone, std::size_t) noexcept {
  std::free(gone);
}

namespace fenceguard::proof {
namespace {

TEST(Allocations, TheRuleAnswersOrThrowsAndChangesNothing) {
  const std::string older(100, 'a'), newer(100, 'b');
  const FenceView before{Fence{Token{33}, Holder{older}, Sequence{7}, false}, 5};
  int thrown = 0;
  for (const std::int64_t token : {32, 33, 34}) {
    for (const auto& holder : {older, newer}) {
      const Claim claim{Resource{"accounts/42"}, Token{token}, Holder{holder}, Sequence{8}};
      const Ruling expected = judge(before, claim);
      bool is_over = false;
      for (int n = 1; !is_over; ++n) {
        ASSERT_LT(n, 100);
        FenceView view = before;
        Memory::fail_at(n);
        try {
          const Memory::Watch watch;
          const Ruling ruling = judge(view, claim);
          is_over = !Memory::has_failed();
          EXPECT_EQ(ruling.verdict, expected.verdict);
          EXPECT_EQ(ruling.highest, expected.highest);
        } catch (const std::bad_alloc&) {
          ++thrown;
        }
        Memory::fail_at(0);
        EXPECT_EQ(view.record, before.record);
        EXPECT_EQ(view.floor, before.floor);
      }
    }
  }
  EXPECT_GT(thrown, 0);
}

TEST(Allocations, AGuardThatDiesAtAnyOfThemHasToldNobodyAnythingWrong) {
  Counts sum;
  int long_runs = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    std::int64_t n = 1;
    for (bool is_over = false; !is_over; ++n) {
      Memory::fail_at(n);
      const Simulated simulated = simulate(seed, 30);
      is_over = !Memory::has_failed();
      sum.add(simulated.counts);
      const auto violations = check(simulated.history);
      ASSERT_TRUE(violations.empty()) << "seed " << seed << ", allocation " << n << ": " << violations[0].rule
                                      << ": " << violations[0].sentence;
    }
    long_runs += n > 20;  // the others have neither a lane nor a queue
  }
  Memory::fail_at(0);
  fmt::print("{} histories, {} operations, {} guard crashes\n", sum.histories, sum.operations,
             sum.guard_crashes);
  EXPECT_GE(long_runs, 3);
  EXPECT_GT(sum.guard_crashes, 100);
}

}  // namespace
}  // namespace fenceguard::proof
