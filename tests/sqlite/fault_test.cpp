// Disks that fail and machines that lose their power, at the first call, at the second, ... until a run
// passes. After each: what was acknowledged is there, no fence went back, and what failed was certainly not
// applied or is called unknown.

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "adapters/sqlite/guard.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"
#include "tests/sqlite/faulty_vfs.hpp"

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
  // Waits until the storage has opened itself again.
  static void wait_until_ready(const OpenStorage& storage) {
    const auto deadline = BootClock::now() + std::chrono::seconds{20};
    while (storage.status().state != StoreState::ready) {
      ASSERT_LT(BootClock::now(), deadline) << storage.status().reason;
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
  }

  TempDir folder_{TempDir::Place::memory};
  FaultyVfs disk_{folder_.path()};
};

// What a caller knows of the resources that it wrote: the least that must be there, and what may be there.
class Knowledge {
 public:
  // Makes a call with the next token of resource; notes how it ended.
  void advance(const OpenStorage& storage, const std::string& resource) {
    auto& known = known_[resource];
    const auto token = ++known.asked;
    attempt(
        known,
        [&] {
          EXPECT_EQ(storage.advance(claim_of(resource, token)).verdict, Verdict::admitted);
          known.acknowledged = token;
        },
        token);
  }
  void put(const OpenStorage& storage, const std::string& resource) {
    auto& known = known_[resource];
    const auto token = ++known.asked;
    attempt(
        known,
        [&] {
          EXPECT_EQ(storage.put(claim_of(resource, token), std::to_string(token)).ending.has_value(), true);
          known.acknowledged = token;
          known.body = token;
        },
        token);
    if (known.unknown.contains(token)) known.unknown_bodies.insert(token);
  }

  void check(const OpenStorage& storage) const {
    for (const auto& [resource, known] : known_) {
      const auto token = storage.show(resource).highest();
      EXPECT_GE(token, known.acknowledged) << resource;
      EXPECT_TRUE(token == known.acknowledged || known.unknown.contains(token))
          << resource << ": " << token << " was certainly not applied, they said";
      const auto text = storage.body(resource);
      const std::int64_t body = text.empty() ? 0 : std::stoll(text);
      EXPECT_TRUE(body == known.body || (body > known.body && known.unknown_bodies.contains(body)))
          << resource << ": " << body << " instead of " << known.body;
      EXPECT_LE(body, token);
      if (token > 1) {
        EXPECT_EQ(storage.advance(claim_of(resource, token - 1)).verdict, Verdict::stale) << resource;
      }
    }
  }
  [[nodiscard]] int faults() const { return faults_; }
  [[nodiscard]] int unknowns() const { return unknowns_; }

 private:
  struct Known {
    std::int64_t asked = 0;
    std::int64_t acknowledged = 0;
    std::int64_t body = 0;
    std::set<std::int64_t> unknown;
    std::set<std::int64_t> unknown_bodies;
  };

  template <class Call>
  void attempt(Known& known, const Call& call, std::int64_t token) {
    try {
      call();
    } catch (const Error& error) {
      ++faults_;
      EXPECT_TRUE(error.kind() == FaultKind::unavailable || error.kind() == FaultKind::unknown)
          << error.what();
      if (error.kind() == FaultKind::unknown) {
        ++unknowns_;
        known.unknown.insert(token);
      }
    }
  }

  std::map<std::string, Known> known_;
  int faults_ = 0;
  int unknowns_ = 0;
};

// Some calls of all kinds.
void work(const OpenStorage& storage, Knowledge& knowledge) {
  for (int i = 0; i < 3; ++i) {
    knowledge.advance(storage, "a");
    knowledge.put(storage, "a");
    knowledge.put(storage, "b");
  }
}

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
      disk_.fail_at(n, fault.code, fault.kinds, fault.times);
      work(storage, knowledge);
      is_over = disk_.failures() == 0;
      const bool has_failed_sync = disk_.failed_syncs() > 0;
      if (has_failed_sync && fault.times == for_ever) {
        EXPECT_NE(storage.status().state, StoreState::ready);
        EXPECT_THROW((void)storage.put(claim_of("a", 1'000), "x"), Unavailable);
      }
      disk_.heal();
      wait_until_ready(storage);
      knowledge.check(storage);
      const int faults = knowledge.faults();
      work(storage, knowledge);
      EXPECT_EQ(knowledge.faults(), faults) << "the disk is well again";
      knowledge.check(storage);
    }
    const OpenStorage again{path};
    knowledge.check(again);
  }
}

// A call fails, and then the power.
TEST_P(FailingDisk, AfterAFailureAndAPowerCutWhatWasAcknowledgedIsThere) {
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
      disk_.fail_at(n, fault.code, fault.kinds, fault.times);
      work(storage, knowledge);
      is_over = disk_.failures() == 0;
      if (n % 2 == 0) {  // at once, or after it has recovered
        disk_.heal();
        wait_until_ready(storage);
        work(storage, knowledge);
      }
      disk_.crash();
    }
    disk_.restart();
    const OpenStorage storage{path};
    knowledge.check(storage);
    work(storage, knowledge);
    knowledge.check(storage);
  }
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

class PowerCut : public testing::Test {
 protected:
  TempDir folder_{TempDir::Place::memory};
  FaultyVfs disk_{folder_.path()};
};

// Any number of cuts in a row, at arbitrary moments: synchronous=FULL is what keeps the acknowledged.
TEST_F(PowerCut, NothingAcknowledgedIsLostHoweverOftenThePowerGoes) {
  const auto path = folder_.file("fenceguard.db");
  Knowledge knowledge;
  for (int round = 0; round < scaled(40); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    OpenStorage storage{path};
    knowledge.check(storage);
    for (int i = 0; i <= round % 4; ++i) work(storage, knowledge);
    disk_.crash();
    EXPECT_THROW((void)storage.put(claim_of("c", round + 1), "x"), Error);
    storage.close();
    disk_.restart();
  }
  EXPECT_EQ(knowledge.faults(), 0);
}

// Grants and counters are as durable as fences.
TEST_F(PowerCut, NoTokenIsIssuedTwice) {
  const auto path = folder_.file("fenceguard.db");
  std::int64_t last = 0;
  for (int round = 0; round < scaled(20); ++round) {
    OpenStorage storage{path};
    auto& source = *storage->own_source();
    for (int i = 0; i < 5; ++i) {
      const Resource resource{"r/" + std::to_string(round) + "/" + std::to_string(i)};
      const auto answer = source.try_acquire(resource, Holder{"h"}, std::chrono::seconds{60});
      const auto token = std::get<Grant>(answer).claim.token.value();
      EXPECT_GT(token, last);
      last = token;
    }
    disk_.crash();
    storage.close();
    disk_.restart();
  }
}

// The service's own transaction: a commit that failed is unknown or certainly nothing, and what was committed
// stays.
TEST_F(PowerCut, AServicesOwnTransactionKeepsWhatItCommitted) {
  for (const char* journal : {"PRAGMA journal_mode = WAL", "PRAGMA journal_mode = DELETE"}) {
    SCOPED_TRACE(journal);
    bool is_over = false;
    for (int n = 1; !is_over; n += stride) {
      ASSERT_LT(n, 1'000);
      SCOPED_TRACE("call " + std::to_string(n));
      const auto path = folder_.file(std::to_string(n) + (journal[22] == 'W' ? ".wal.db" : ".db"));
      std::int64_t acknowledged = 0;
      std::set<std::int64_t> possible;
      {
        sqlite::Database database{path, sqlite::Database::Mode::create};
        sqlite::execute(database.handle(), journal);
        sqlite::install_in(database.handle());
        sqlite::execute(database.handle(), "CREATE TABLE data (token INTEGER)");
        sqlite::Guard guard{database.handle()};
        disk_.fail_at(n, SQLITE_IOERR, {Operation::write, Operation::sync, Operation::truncate});
        for (std::int64_t token = 1; token <= 4; ++token) {
          try {
            const auto sql = "INSERT INTO data VALUES (" + std::to_string(token) + ")";
            const auto ruling =
                guard.write(claim_of("a", token), [&](sqlite3* db) { sqlite::execute(db, sql.c_str()); });
            ASSERT_EQ(ruling.verdict, Verdict::admitted);
            acknowledged = token;
          } catch (const OutcomeUnknown&) {
            possible.insert(token);
          } catch (const Unavailable&) {
            // Certainly nothing.
          }
        }
        is_over = disk_.failures() == 0;
        disk_.crash();
      }
      disk_.restart();
      sqlite::Database database{path, sqlite::Database::Mode::read_write};
      sqlite::Guard guard{database.handle()};
      const auto highest = guard.advance(claim_of("a", 1, "late")).highest;
      EXPECT_TRUE(highest == acknowledged || (highest > acknowledged && possible.contains(highest)))
          << highest << " instead of " << acknowledged;
      EXPECT_EQ(query(path, "SELECT coalesce(max(token), 0) FROM data"), std::to_string(highest));
    }
  }
}

}  // namespace
}  // namespace fenceguard::test
