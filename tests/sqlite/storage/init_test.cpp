// State that is not there, and how it comes to be: by the guard itself, by hand, from another process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "adapters/sqlite/file/file.hpp"
#include "adapters/sqlite/token_source.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/process/child_process.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;

StorageOptions inspecting() {
  StorageOptions options;
  options.mode = StorageOptions::Mode::inspect;
  return options;
}

// The message with which opening is refused; '' if it is not.
std::string refusal(const std::string& path, const StorageOptions& options = initialised()) {
  try {
    (void)sqlite::open_storage(path, options);
    return "";
  } catch (const Unavailable& error) {
    return error.what();
  }
}

class Initialisation : public testing::Test {
 protected:
  TempDir folder_;
  const std::string path_ = folder_.file("fenceguard.db");
};

TEST_F(Initialisation, NoStateIsNoLicence) {
  const OpenStorage storage{path_, StorageOptions{}};
  EXPECT_EQ(storage.status().state, StoreState::uninitialised);
  EXPECT_THAT(storage.status().reason, HasSubstr("fence init"));
  EXPECT_THROW((void)storage.advance(claim_of("a", 1)), Unavailable);
  EXPECT_THROW((void)storage.put(claim_of("a", 1), "x"), Unavailable);
  EXPECT_THROW((void)storage.read("a", claim_of("a", 1)), Unavailable);
  EXPECT_THROW((void)storage.revoke("a"), Unavailable);
  EXPECT_THROW((void)storage.compact(1), Unavailable);
  EXPECT_THROW((void)storage.rebase("a", 1), Unavailable);
  EXPECT_EQ(storage.init(7), 7);
  EXPECT_EQ(storage.status().state, StoreState::ready);
  EXPECT_EQ(storage.advance(claim_of("a", 7)).verdict, Verdict::stale);
  EXPECT_EQ(storage.advance(claim_of("a", 8)).verdict, Verdict::admitted);
}

TEST_F(Initialisation, AStorageWithItsOwnSourceInitialisesItselfAboveWhatItHasDrawn) {
  std::int64_t last = 0;
  {
    const OpenStorage storage{path_, StorageOptions{}};
    for (int i = 0; i < 5; ++i) last = storage->own_source()->draw().value();
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(storage.status().floor, last);
  EXPECT_EQ(storage.advance(claim_of("a", last)).verdict, Verdict::stale);
}

TEST_F(Initialisation, OpeningAgainToInitialiseChangesNothing) {
  {
    const OpenStorage storage{path_};
    (void)storage.init(50);
    (void)storage.advance(claim_of("a", 60));
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(storage.status().floor, 50);
  EXPECT_EQ(storage.status().highest, 60);
  EXPECT_EQ(storage.status().resources, 1);
  EXPECT_EQ(storage.show("a").record, fence_of(60));
}

TEST_F(Initialisation, BesideARunningGuardEverythingIsSeenAndNothingChanged) {
  const OpenStorage guard{path_};
  (void)guard.advance(claim_of("a", 5));
  const OpenStorage beside{path_, inspecting()};
  EXPECT_EQ(beside->objects(), nullptr);
  EXPECT_EQ(beside->own_source(), nullptr);
  EXPECT_EQ(beside.status().state, StoreState::ready);
  EXPECT_EQ(beside.status().highest, 5);
  EXPECT_EQ(beside.show("a").record, fence_of(5));
  EXPECT_EQ(beside.list({}).entries.size(), 1u);
  EXPECT_THROW((void)beside.advance(claim_of("a", 6)), Unavailable);
  EXPECT_THROW((void)beside.revoke("a"), Unavailable);
  EXPECT_THROW((void)beside.compact(6), Unavailable);
  EXPECT_THROW((void)beside.rebase("a", 1), Unavailable);
  EXPECT_THROW((void)beside.init(100), Unavailable);
  EXPECT_EQ(guard.show("a"), (FenceView{fence_of(5), 0}));
  (void)guard.advance(claim_of("a", 7));
  EXPECT_EQ(beside.show("a").record, fence_of(7));
}

TEST_F(Initialisation, NothingIsLookedAtThatIsNotThere) {
  EXPECT_THAT(refusal(path_, inspecting()), HasSubstr("does not exist"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

// A guard in another process waits for its state; it is initialised from here, and the guard takes note.
TEST_F(Initialisation, ARunningGuardTakesNoteOfAnInitialisationFromOutside) {
  ChildProcess guard{{"wait-for-init", path_}};
  ASSERT_EQ(guard.read_line(), "uninitialised");
  const OpenStorage beside{path_, inspecting()};
  EXPECT_EQ(beside.status().state, StoreState::uninitialised);
  EXPECT_EQ(beside.init(41), 41);
  EXPECT_EQ(guard.read_line(), "41");
  EXPECT_EQ(guard.read_line(), "stale");
  EXPECT_EQ(guard.read_line(), "admitted");
  EXPECT_EQ(beside.show("r").record, fence_of(42));
  EXPECT_THROW((void)beside.init(100), Unavailable);
}

// Two initialisations at once, one by the guard and one from outside: the floor is never below one that was
// confirmed, whichever came first.
TEST_F(Initialisation, ALateInitialisationNeverLowersAnEarlierOne) {
  for (int round = 0; round < scaled(40); ++round) {
    const auto path = folder_.file(std::to_string(round) + ".db");
    const OpenStorage guard{path, StorageOptions{}};
    const OpenStorage beside{path, inspecting()};
    std::int64_t confirmed = 0;
    std::jthread other{[&] {
      try {
        confirmed = beside.init(100);
      } catch (const Unavailable&) {
        // The guard was faster.
      }
    }};
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds{50 * round});
    EXPECT_GE(guard.init(10), 10);
    other.join();
    ASSERT_GE(guard.init(0), confirmed) << "round " << round;
    ASSERT_GE(beside.show("a").floor, confirmed) << "round " << round;
  }
}

TEST_F(Initialisation, ASecondGuardIsRefused) {
  const OpenStorage guard{path_};
  EXPECT_THAT(refusal(path_), HasSubstr("another fenceguard is the guard"));
  ChildProcess other{{"open", path_}};
  EXPECT_THAT(other.read_line().value_or(""), HasSubstr("another fenceguard is the guard"));
}

// A guard that is stopped for as long as you like is not dead: its lock is held, and no time to live ends it.
TEST_F(Initialisation, AStoppedGuardKeepsItsLockAndADeadOneDoesNot) {
  ChildProcess guard{{"open", path_}};
  ASSERT_EQ(guard.read_line(), "open");
  guard.signal(SIGSTOP);
  EXPECT_THAT(refusal(path_), HasSubstr("another fenceguard is the guard"));
  guard.signal(SIGKILL);
  guard.wait();
  EXPECT_EQ(refusal(path_), "");
}

// A hard link has a log of its own: opened by that name, the file would be without what its guard, which was
// killed, had acknowledged last.
TEST_F(Initialisation, ADatabaseWithTwoNamesIsRefused) {
  ChildProcess guard{{"open", path_}};
  ASSERT_EQ(guard.read_line(), "open");
  const std::string linked = folder_.file("linked.db");
  std::filesystem::create_hard_link(path_, linked);
  EXPECT_THAT(refusal(linked), HasSubstr("2 names"));
  guard.signal(SIGKILL);
  guard.wait();
  for (const auto& name : {path_, linked}) {
    EXPECT_THAT(refusal(name), HasSubstr("2 names"));
    EXPECT_THROW((void)sqlite::open_source(name), Unavailable);
  }
  std::filesystem::remove(linked);
  EXPECT_EQ(refusal(path_), "");
}

// People delete FILE-guard because it looks stale.
TEST_F(Initialisation, WithoutItsLockFileAGuardIsStillTheOnlyOne) {
  ChildProcess guard{{"open", path_}};
  ASSERT_EQ(guard.read_line(), "open");
  ASSERT_TRUE(std::filesystem::remove(path_ + "-guard"));
  EXPECT_THAT(refusal(path_), HasSubstr("another fenceguard is the guard"));
  guard.signal(SIGKILL);
  guard.wait();
  EXPECT_EQ(refusal(path_), "");
}

// How many locks of fcntl(2) there are on a file.
int fcntl_locks(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(stat(path.c_str(), &found), 0);
  const std::string inode = ":" + std::to_string(found.st_ino) + " ";
  std::ifstream locks{"/proc/locks"};
  int count = 0;
  for (std::string line; std::getline(locks, line);) {
    const bool is_fcntl = line.find(" POSIX ") != std::string::npos;
    if (is_fcntl && line.find(inode) != std::string::npos) ++count;
  }
  return count;
}

// To close a descriptor of the database would drop the locks that SQLite has there.
TEST_F(Initialisation, AGuardThatIsRefusedDropsNoLockOfTheFirstInItsProcess) {
  OpenStorage guard{path_};
  const int locks = fcntl_locks(path_);
  EXPECT_GT(locks, 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(std::filesystem::remove(path_ + "-guard"));
    EXPECT_THAT(refusal(path_), HasSubstr("another fenceguard is the guard"));
    EXPECT_EQ(fcntl_locks(path_), locks);
  }
  guard.close();
  EXPECT_EQ(refusal(path_), "");
}

TEST_F(Initialisation, ASecondGuardWaitsAsLongAsItIsToldAndThenSaysSo) {
  const OpenStorage guard{path_};
  StorageOptions options = initialised();
  options.lock_wait = std::chrono::milliseconds{50};
  const auto start = std::chrono::steady_clock::now();
  try {
    const OpenStorage second{path_, options};
    FAIL() << "there are two guards";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), HasSubstr("was after 50 ms of waiting"));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, options.lock_wait);
}

// A process is stopped with SIGSTOP, and another one waits for its lock; then the first is killed.
TEST_F(Initialisation, AWaitingGuardTakesOverWhenTheFirstIsDeadAndNotWhenItIsSilent) {
  ChildProcess guard{{"open", path_}};
  ASSERT_EQ(guard.read_line(), "open");
  guard.signal(SIGSTOP);
  auto second = std::async(std::launch::async, [this] {
    StorageOptions options = initialised();
    options.lock_wait = std::chrono::seconds{60};
    return sqlite::open_storage(path_, options)->fences().status().state;
  });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds{1'500}), std::future_status::timeout);
  EXPECT_TRUE(sqlite::GuardLock::is_taken(path_));
  guard.signal(SIGKILL);
  guard.wait();
  EXPECT_EQ(second.get(), StoreState::ready);
}

// A guard of an older version runs on; nothing is upgraded under it.
TEST_F(Initialisation, NoUpgradeHappensBesideARunningGuard) {
  const OpenStorage guard{path_};
  change(path_, "UPDATE fenceguard_schema SET version = 2; DROP TABLE fenceguard_object");
  EXPECT_NE(refusal(path_), "");
  EXPECT_NE(refusal(path_, inspecting()), "");
  EXPECT_EQ(query(path_, "SELECT version FROM fenceguard_schema"), "2");
}

// SQLite would apply the old log to the new file.
TEST_F(Initialisation, NoFileIsMadeBesideTheLogOfOneThatIsGone) {
  const auto log = path_ + "-wal";
  {
    const OpenStorage storage{path_};
    (void)storage.advance(claim_of("a", 3));
    std::filesystem::copy_file(log, folder_.file("kept"));
  }
  std::filesystem::remove(path_);
  std::filesystem::rename(folder_.file("kept"), log);
  EXPECT_THAT(refusal(path_), HasSubstr("delete " + log));
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::filesystem::remove(log);
  EXPECT_EQ(refusal(path_), "");
}

TEST_F(Initialisation, AFolderThatIsNotThereIsNamed) {
  EXPECT_THAT(refusal(folder_.file("no/such/fenceguard.db")), HasSubstr("no/such"));
}

}  // namespace
}  // namespace fenceguard::test
