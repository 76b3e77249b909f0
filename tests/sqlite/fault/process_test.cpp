// Processes that are killed, and disks that are full.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/process/child_process.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using std::chrono::milliseconds;

// What a process that was killed had acknowledged: per resource the highest advance, and the last write.
struct Acknowledged {
  std::map<std::string, std::int64_t> advances;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> writes;  // token, number
  std::int64_t highest = 0;
  int count = 0;

  void add(const std::string& line) {
    std::istringstream words{line};
    std::string kind, resource;
    std::int64_t token = 0;
    std::int64_t number = 0;
    words >> kind >> resource >> token >> number;
    if (kind != "a" && kind != "w") return;
    ++count;
    highest = std::max(highest, token);
    auto& advance = advances[resource];
    advance = std::max(advance, token);
    if (kind == "a") return;
    auto& write = writes[resource];
    write = std::max(write, {token, number});
  }

  void check(const OpenStorage& storage) const {
    for (const auto& [resource, token] : advances) {
      const auto view = storage.show(resource);
      ASSERT_TRUE(view.record) << resource;
      EXPECT_GE(view.record->token.value(), token) << resource;
      EXPECT_EQ(storage.advance(claim_of(resource, token - 1, "late")).verdict, Verdict::stale) << resource;
    }
    // A later write of a token replaces an earlier one, and a higher token's those of all lower ones.
    for (const auto& [resource, write] : writes) {
      std::istringstream words{storage.body(resource)};
      std::string name;
      std::pair<std::int64_t, std::int64_t> found;
      words >> name >> found.first >> found.second;
      EXPECT_EQ(name, resource);
      EXPECT_GE(found, write) << resource;
      EXPECT_GE(storage.show(resource).record->token.value(), found.first) << resource;
    }
  }
};

// A guard with four writers is killed at a random moment, again and again, on one file. After each time
// everything that it had acknowledged is there, and it answers again within a second, unless it is the
// machine that hesitates, which it may now and then. In memory: what a process leaves behind needs no disk,
// which others may keep busy for seconds.
TEST(KilledGuard, LosesNothingThatItAcknowledged) {
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 13);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random{seed};
  const TempDir folder{TempDir::Place::memory};
  const auto path = folder.file("fenceguard.db");
  Acknowledged acknowledged;
  constexpr int rounds = scaled(120);
  int slow = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ChildProcess guard{{"writers", path, "4", std::to_string(acknowledged.highest + 1'000)}};
    ASSERT_EQ(guard.read_line(), "open");
    const auto acknowledgement = guard.read_line();
    ASSERT_TRUE(acknowledgement);
    acknowledged.add(*acknowledgement);
    std::this_thread::sleep_for(milliseconds{random() % 60});
    guard.signal(SIGKILL);
    for (const auto& line : guard.read_rest()) acknowledged.add(line);
    guard.wait();
    const auto begin = BootClock::now();
    const OpenStorage storage{path};
    const auto first = storage.advance(claim_of("r/0", acknowledged.highest + 500, "next")).verdict;
    if (BootClock::now() - begin >= std::chrono::seconds{1}) ++slow;
    EXPECT_EQ(first, Verdict::admitted);
    acknowledged.check(storage);
    if (HasFailure()) return;
  }
  EXPECT_GE(acknowledged.count, rounds);
  if (slowdown == 1) {
    EXPECT_LE(slow, rounds / 10);
  }
}

// A file system of a few megabytes, as long as the object lives.
class SmallDisk {
 public:
  SmallDisk() : is_mounted_{mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=8m") == 0} {}
  ~SmallDisk() {
    if (is_mounted_) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  [[nodiscard]] bool is_mounted() const { return is_mounted_; }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  TempDir folder_;
  bool is_mounted_;
};

std::string name_of(int number) {
  return "o/" + std::to_string(number);
}

void check_objects(const OpenStorage& storage, int count) {
  for (int number = 1; number <= count; ++number) {
    ASSERT_EQ(storage.body(name_of(number)).size(), 16'384u) << number;
    ASSERT_EQ(storage.show(name_of(number)).record, fence_of(1)) << number;
  }
}

// Writes until the disk is full: 'unavailable', and nothing of it applied; works again when there is room.
TEST(FullDisk, IsUnavailableAndLosesNothing) {
  const SmallDisk disk;
  if (!disk.is_mounted())
    GTEST_SKIP() << "no right to mount; a limit on the size of files does the same below";
  const auto path = disk.file("fenceguard.db");
  int written = 0;
  {
    OpenStorage storage{path};
    std::ofstream{disk.file("ballast")} << std::string(5'000'000, 'x');
    const std::string body(16'384, 'x');
    const std::string large(100'000, 'x');  // for which certainly no room is left
    bool is_full = false;
    while (!is_full) {
      try {
        (void)storage.put(claim_of(name_of(written + 1), 1), body);
        ++written;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), FaultKind::unavailable) << error.what();
        is_full = true;
      }
      ASSERT_LT(written, 1'000);
    }
    EXPECT_GT(written, 3);
    for (int i = 0; i < 5; ++i) EXPECT_THROW((void)storage.put(claim_of("large", 1), large), Unavailable);
    check_objects(storage, written);
    EXPECT_FALSE(storage.show(name_of(written + 1)).record);
    EXPECT_FALSE(storage.show("large").record);
    std::filesystem::remove(disk.file("ballast"));
    EXPECT_EQ(storage.put(claim_of(name_of(written + 1), 1), body).ending, ObjectEnding::created);
    ++written;
  }
  check_objects(OpenStorage{path}, written);
}

TEST(FullDisk, ALimitOnTheSizeOfFilesIsMetTheSameWay) {
  const TempDir folder;
  const auto path = folder.file("fenceguard.db");
  ChildProcess child{{"fill", path, "2000000"}};
  const auto lines = child.read_rest();
  ASSERT_GE(lines.size(), 4u);
  EXPECT_EQ(lines.back(), "again");
  EXPECT_EQ(lines[lines.size() - 3], "unavailable");
  check_objects(OpenStorage{path}, static_cast<int>(lines.size()) - 3);
}

TEST(FullDisk, AFileThatCannotBeCompletedIsNotCreated) {
  const SmallDisk disk;
  if (!disk.is_mounted()) return;  // the faulty layer shows the same for every call
  std::ofstream{disk.file("ballast")} << std::string(9'000'000, 'x');
  EXPECT_THROW(OpenStorage{disk.file("fenceguard.db")}, Unavailable);
  std::filesystem::remove(disk.file("ballast"));
  const OpenStorage storage{disk.file("fenceguard.db")};
  EXPECT_EQ(storage.advance(claim_of("a", 1)).verdict, Verdict::admitted);
}

}  // namespace
}  // namespace fenceguard::test
