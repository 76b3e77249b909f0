// How many segments of a path name a resource, as the file keeps it beside its fences.

#include "guard/store/resource_depth.hpp"

#include <gtest/gtest.h>

#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

class KeptDepth : public testing::Test {
 protected:
  TempDir folder_;
  const std::string path_ = folder_.file("state.db");
};

TEST_F(KeptDepth, TheFirstOneStaysForEveryProcess) {
  {
    const OpenStorage storage{path_};
    EXPECT_EQ(storage->depth_record()->keep(2), 2U);
    EXPECT_EQ(storage->depth_record()->keep(0), 2U);
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(storage->depth_record()->keep(1), 2U);
}

TEST_F(KeptDepth, AnotherOneComesWithAFloorThatNoTokenSeenPasses) {
  {
    const OpenStorage storage{path_};
    EXPECT_EQ(storage->depth_record()->keep(0), 0U);
    ASSERT_EQ(storage.advance(claim_of("accounts/42", 90)).verdict, Verdict::admitted);
    EXPECT_EQ(storage->depth_record()->change(1), 90);
    EXPECT_EQ(storage.status().floor, 90);
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(storage->depth_record()->keep(0), 1U);
  EXPECT_EQ(storage.advance(claim_of("accounts", 90)).verdict, Verdict::stale);
  EXPECT_EQ(storage.advance(claim_of("accounts", 91)).verdict, Verdict::admitted);
}

TEST_F(KeptDepth, AStateThatIsNotInitialisedKeepsOneAndStaysSo) {
  const OpenStorage storage{path_, StorageOptions{}};
  EXPECT_EQ(storage->depth_record()->keep(1), 1U);
  EXPECT_EQ(storage->depth_record()->change(2), 0);
  EXPECT_EQ(storage->depth_record()->keep(1), 2U);
  EXPECT_EQ(storage.status().state, StoreState::uninitialised);
}

TEST_F(KeptDepth, ADamagedOneIsNotBelieved) {
  {
    const OpenStorage storage{path_};
    EXPECT_EQ(storage->depth_record()->keep(1), 1U);
  }
  change(path_, "UPDATE fenceguard_depth SET depth = 0");
  const OpenStorage storage{path_};
  EXPECT_THROW((void)storage->depth_record()->keep(0), Unavailable);
}

}  // namespace
}  // namespace fenceguard::test
