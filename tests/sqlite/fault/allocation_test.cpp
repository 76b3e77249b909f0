// SQLite has no memory left at the first allocation of some calls, at the second, ... until a run passes:
// what it says of each call is so, and the storage goes on by itself.

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>

#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"
#include "tests/sqlite/fault/knowledge.hpp"

namespace fenceguard::test {
namespace {

std::atomic<int> until_failure{0};  // 0: none
std::atomic<int> failures{0};
sqlite3_mem_methods original{};

bool is_to_fail() {
  int left = until_failure.load();
  while (left > 0 && !until_failure.compare_exchange_weak(left, left - 1)) {
  }
  if (left != 1) return false;
  ++failures;
  return true;
}
void* allocate(int size) {
  return is_to_fail() ? nullptr : original.xMalloc(size);
}
void* reallocate(void* old, int size) {
  return is_to_fail() ? nullptr : original.xRealloc(old, size);
}

// Before SQLite is used for the first time.
class FailingMemory : public testing::Environment {
 public:
  void SetUp() override {
    ASSERT_EQ(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &original), SQLITE_OK);
    sqlite3_mem_methods failing = original;
    failing.xMalloc = allocate;
    failing.xRealloc = reallocate;
    ASSERT_EQ(sqlite3_config(SQLITE_CONFIG_MALLOC, &failing), SQLITE_OK);
  }
};
const auto* const environment = testing::AddGlobalTestEnvironment(new FailingMemory);

TEST(SqliteAllocations, EachMayFailAndWhatIsSaidOfItsCallIsSo) {
  ASSERT_NE(environment, nullptr);
  const TempDir folder{TempDir::Place::memory};
  int faults = 0, unknowns = 0;
  bool is_over = false;
  for (int n = 1; !is_over; n += slowdown) {
    ASSERT_LT(n, 10'000);
    SCOPED_TRACE("allocation " + std::to_string(n));
    const auto path = folder.file(std::to_string(n) + ".db");
    Knowledge knowledge;
    {
      const OpenStorage storage{path};
      work(storage, knowledge);
      failures = 0;
      until_failure = n;
      knowledge.advance(storage, "a");
      knowledge.put(storage, "b");
      until_failure = 0;
      is_over = failures == 0;
      ASSERT_NO_FATAL_FAILURE(wait_until_ready(storage));
      knowledge.check(storage);
      faults += knowledge.faults();
      unknowns += knowledge.unknowns();
      work(storage, knowledge);
      knowledge.check(storage);
    }
    knowledge.check(OpenStorage{path});
    if (testing::Test::HasFailure()) return;
  }
  fmt::print("{} faults, {} of them unknown\n", faults, unknowns);
  EXPECT_GT(faults, 10);
}

// The same for opening a file: refused, and with success the next time.
TEST(SqliteAllocations, OpeningIsRefusedAndRepeatedWithSuccess) {
  const TempDir folder{TempDir::Place::memory};
  int refusals = 0;
  bool is_over = false;
  for (int n = 1; !is_over; n += 17 * slowdown) {
    ASSERT_LT(n, 20'000);
    SCOPED_TRACE("allocation " + std::to_string(n));
    const auto path = folder.file(std::to_string(n) + ".db");
    Knowledge knowledge;
    {
      const OpenStorage storage{path};
      work(storage, knowledge);
    }
    failures = 0;
    until_failure = n;
    try {
      const OpenStorage storage{path};
    } catch (const Error&) {
      ++refusals;
    }
    until_failure = 0;
    is_over = failures == 0;
    const OpenStorage storage{path};
    knowledge.check(storage);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(refusals, 5);
}

}  // namespace
}  // namespace fenceguard::test
