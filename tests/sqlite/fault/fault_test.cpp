// Disks that fail and machines that lose their power, at the first call, at the second, ... until a run
// passes. After each: what was acknowledged is there, no fence went back, and what failed was certainly not
// applied or is called unknown.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <thread>

#include "adapters/sqlite/guard.hpp"
#include "adapters/sqlite/token_source.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"
#include "tests/sqlite/fault/faulty_vfs.hpp"
#include "tests/sqlite/fault/knowledge.hpp"

namespace fenceguard::test {
namespace {

using Operation = FaultyVfs::Operation;

struct FaultKindOfDisk {
  const char* name;
  int code;
  std::set<Operation> kinds;
  int times;
};

constexpr int for_ever = 1'000'000;

// From one failing call to the next: every one, but for builds with a sanitizer.
constexpr int stride = slowdown == 1 ? 1 : 5;

class FailingDisk : public testing::TestWithParam<FaultKindOfDisk> {
 protected:
  // Lets the n-th call fail. A log is truncated only when it is begun anew, such as after a sync that failed.
  void fail_at(int n) {
    const auto& fault = GetParam();
    if (fails_to_truncate()) {
      disk_.fail_at(n, SQLITE_IOERR_FSYNC, {Operation::sync});
      disk_.also_fail_at(1, fault.code, fault.kinds, fault.times);
    } else {
      disk_.fail_at(n, fault.code, fault.kinds, fault.times);
    }
  }
  [[nodiscard]] static bool fails_to_truncate() { return GetParam().kinds == std::set{Operation::truncate}; }
  // A failure to truncate comes when the storage is opened again, and does not keep it from being ready.
  void heal(const OpenStorage& storage) {
    if (fails_to_truncate()) wait_until_ready(storage);
    count_failures();
    disk_.heal();
    wait_until_ready(storage);
  }
  void count_failures() {
    for (const auto kind : GetParam().kinds) failures_ += disk_.failures(kind);
  }

  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed())};
  TempDir folder_{TempDir::Place::memory};
  FaultyVfs disk_{folder_.path(), seed()};
  int failures_ = 0;  // of the kinds in question
};

// A call fails, the disk recovers, and the storage goes on by itself.
TEST_P(FailingDisk, EveryCallMayFailAndTheStorageComesBackByItself) {
  const auto& fault = GetParam();
  bool is_over = false;
  for (int n = 1; !is_over; n += stride) {
    ASSERT_LT(n, 1'000);
    SCOPED_TRACE("call " + std::to_string(n));
    const auto path = folder_.file(std::to_string(n) + ".db");
    Knowledge knowledge;
    {
      const OpenStorage storage{path};
      work(storage, knowledge);
      fail_at(n);
      work(storage, knowledge);
      is_over = disk_.failures() == 0;
      const bool has_failed_sync = disk_.failures(Operation::sync) > 0;
      if (has_failed_sync && fault.times == for_ever) {
        EXPECT_NE(storage.status().state, StoreState::ready);
        EXPECT_THROW((void)storage.put(claim_of("a", 1'000), "x"), Unavailable);
      }
      heal(storage);
      knowledge.check(storage);
      const int faults = knowledge.faults();
      work(storage, knowledge);
      EXPECT_EQ(knowledge.faults(), faults) << "the disk is well again";
      knowledge.check(storage);
    }
    const OpenStorage again{path};
    knowledge.check(again);
  }
  EXPECT_GT(failures_, 0);
}

// A call fails, and then the power.
TEST_P(FailingDisk, AfterAFailureAndAPowerCutWhatWasAcknowledgedIsThere) {
  bool is_over = false;
  for (int n = 1; !is_over; n += stride) {
    ASSERT_LT(n, 1'000);
    SCOPED_TRACE("call " + std::to_string(n));
    const auto path = folder_.file(std::to_string(n) + ".db");
    Knowledge knowledge;
    {
      const OpenStorage storage{path};
      work(storage, knowledge);
      fail_at(n);
      work(storage, knowledge);
      is_over = disk_.failures() == 0;
      if (n % 2 == 0) {  // at once, or after it has recovered
        heal(storage);
        work(storage, knowledge);
      } else {
        count_failures();
      }
      disk_.crash();
    }
    disk_.restart();
    const OpenStorage storage{path};
    knowledge.check(storage);
    work(storage, knowledge);
    knowledge.check(storage);
  }
  EXPECT_GT(failures_, 0);
}

// The same for what is done while a file is made, upgraded, opened and closed: it is refused, and works the
// next time.
TEST_P(FailingDisk, OpeningMayFailAtEveryCallAndIsRepeatedWithSuccess) {
  const auto& fault = GetParam();
  bool is_over = false;
  for (int n = 1; !is_over; n += stride) {
    ASSERT_LT(n, 1'000);
    SCOPED_TRACE("call " + std::to_string(n));
    const auto path = folder_.file(std::to_string(n) + ".db");
    Knowledge knowledge;
    disk_.fail_at(n, fault.code, fault.kinds, fault.times);
    try {
      const OpenStorage storage{path};
      knowledge.put(storage, "a");
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == FaultKind::unavailable || error.kind() == FaultKind::unknown)
          << error.what();
    }
    is_over = disk_.failures() == 0;
    count_failures();
    disk_.heal();
    {
      const OpenStorage storage{path};
      knowledge.check(storage);
      work(storage, knowledge);
      disk_.crash();
    }
    disk_.restart();
    const OpenStorage storage{path};
    knowledge.check(storage);
  }
  EXPECT_GT(failures_, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FailingDisk,
    testing::Values(FaultKindOfDisk{"write_once", SQLITE_IOERR_WRITE, {Operation::write}, 1},
                    FaultKindOfDisk{"write_for_ever", SQLITE_IOERR_WRITE, {Operation::write}, for_ever},
                    FaultKindOfDisk{"full_for_ever", SQLITE_FULL, {Operation::write}, for_ever},
                    FaultKindOfDisk{"sync_once", SQLITE_IOERR_FSYNC, {Operation::sync}, 1},
                    FaultKindOfDisk{"sync_for_ever", SQLITE_IOERR_FSYNC, {Operation::sync}, for_ever},
                    FaultKindOfDisk{"truncate_once", SQLITE_IOERR_TRUNCATE, {Operation::truncate}, 1},
                    FaultKindOfDisk{"all_for_ever",
                                    SQLITE_IOERR,
                                    {Operation::write, Operation::sync, Operation::truncate},
                                    for_ever}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace fenceguard::test
