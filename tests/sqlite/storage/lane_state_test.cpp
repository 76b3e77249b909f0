// What a lane keeps in the file beside its fences.

#include "guard/store/lane_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

class KeptLane : public testing::Test {
 protected:
  static void mark(const OpenStorage& storage, bool is_open) {
    (void)wait_for<bool>(
        [&](Done<bool> done) { storage->lane_state()->mark_open(is_open, std::move(done)); });
  }
  static Ruling record(const OpenStorage& storage, const Claim& claim) {
    return wait_for<Ruling>(
        [&](Done<Ruling> done) { storage->lane_state()->record(claim, std::move(done)); });
  }

  TempDir folder_;
  const std::string path_ = folder_.file("state.db");
};

TEST_F(KeptLane, TheMarkIsThereForTheNextProcess) {
  {
    const OpenStorage storage{path_};
    EXPECT_FALSE(storage->lane_state()->is_marked_open());
    mark(storage, true);
    EXPECT_TRUE(storage->lane_state()->is_marked_open());
  }
  const OpenStorage storage{path_};
  EXPECT_TRUE(storage->lane_state()->is_marked_open());
  mark(storage, false);
  EXPECT_FALSE(storage->lane_state()->is_marked_open());
}

TEST_F(KeptLane, AStateThatIsNotInitialisedHasNoMarkAndRecordsNothing) {
  const OpenStorage storage{path_, StorageOptions{}};
  EXPECT_FALSE(storage->lane_state()->is_marked_open());
  EXPECT_THROW((void)record(storage, claim_of("a", 34).with(Sequence{1})), Unavailable);
}

TEST_F(KeptLane, ADamagedMarkIsNotBelieved) {
  {
    const OpenStorage storage{path_};
    mark(storage, true);
  }
  for (const char* number : {"0", "3"}) {
    change(path_, std::string{"UPDATE fenceguard_lane SET is_open = "} + number);
    const OpenStorage storage{path_};
    EXPECT_THROW((void)storage->lane_state()->is_marked_open(), Unavailable) << number;
  }
}

TEST_F(KeptLane, ASequenceIsRecordedUnderItsTokenAndJudgedFirst) {
  {
    const OpenStorage storage{path_};
    (void)storage.advance(claim_of("a", 34));
    EXPECT_EQ(record(storage, claim_of("a", 34).with(Sequence{7})).verdict, Verdict::admitted);
    EXPECT_EQ(record(storage, claim_of("a", 34).with(Sequence{7})).verdict, Verdict::duplicate);
    EXPECT_EQ(record(storage, claim_of("a", 34).with(Sequence{6})).verdict, Verdict::stale);
    EXPECT_EQ(record(storage, claim_of("a", 33).with(Sequence{8})).verdict, Verdict::stale);
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(storage.show("a").record->sequence, Sequence{7});
}

TEST_F(KeptLane, AStorageThatIsOnlyLookedAtKeepsNone) {
  { const OpenStorage made{path_}; }
  StorageOptions options;
  options.mode = StorageOptions::Mode::inspect;
  const OpenStorage storage{path_, options};
  EXPECT_EQ(storage->lane_state(), nullptr);
}

}  // namespace
}  // namespace fenceguard::test
