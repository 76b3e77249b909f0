// Machines that lose their power: what was acknowledged is there afterwards, and what was said of a failed
// commit is still so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
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

// From one failing call to the next: every one, but for builds with a sanitizer.
constexpr int stride = slowdown == 1 ? 1 : 5;

class PowerCut : public testing::Test {
 protected:
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed())};
  TempDir folder_{TempDir::Place::memory};
  FaultyVfs disk_{folder_.path(), seed()};
};

// Anybody who reads the file, such as a backup or a shell that was stopped.
class OpenReader {
 public:
  explicit OpenReader(const std::string& path) : database_{path, sqlite::Database::Mode::look} {
    sqlite::execute(database_.handle(), "BEGIN");
    sqlite::execute(database_.handle(), "SELECT count(*) FROM fenceguard_fence");
  }

 private:
  sqlite::Database database_;
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

// What the tests above would show if the log were synced less often. Not in every round: some lose nothing.
TEST_F(PowerCut, WithALowerSynchronousSettingSomethingAcknowledgedIsLost) {
  disk_.lower_synchronous();
  std::size_t mistakes = 0;
  for (int round = 0; round < 40 && mistakes == 0; ++round) {
    const auto path = folder_.file(std::to_string(round) + ".db");
    Knowledge knowledge;
    {
      const OpenStorage storage{path};
      work(storage, knowledge);
      disk_.crash();
    }
    disk_.restart();
    mistakes += knowledge.mistakes(OpenStorage{path}).size();
  }
  EXPECT_GT(mistakes, 0u);
}

// A write ends unknown because its sync failed; the guard opens the file again, and says by a fenced read
// whether the write took effect. The power fails, and it must still be so.
class FailedCommit : public PowerCut {
 protected:
  void cut_after_an_answer(const std::string& path, bool has_reader) {
    std::string said;
    {
      const OpenStorage storage{path};
      ASSERT_EQ(storage.put(claim_of("a", 1), "old").ruling.verdict, Verdict::admitted);
      std::optional<OpenReader> reader;
      if (has_reader) reader.emplace(path);
      disk_.fail_at(1, SQLITE_IOERR_FSYNC, {Operation::sync});
      EXPECT_THROW((void)storage.put(claim_of("a", 1), "new"), OutcomeUnknown);
      ASSERT_NO_FATAL_FAILURE(wait_until_ready(storage));
      said = storage.read("a", claim_of("a", 1)).object->body;
      disk_.crash();
    }
    disk_.restart();
    ASSERT_EQ(OpenStorage{path}.body("a"), said);
  }
  void cut_often(bool has_reader) {
    for (int round = 0; round < scaled(40) && !HasFailure(); ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      cut_after_an_answer(folder_.file(std::to_string(round) + ".db"), has_reader);
    }
  }
};

TEST_F(FailedCommit, WhatAReopenedGuardSaysOfItStays) {
  cut_often(false);
}

// The reader keeps the log from being emptied, and must not keep the guard from coming back.
TEST_F(FailedCommit, BesideAnOpenReaderTheGuardComesBackAndWhatItSaysStays) {
  cut_often(true);
}

// The same for a file that only a token source uses, which has no reader of its own: closing it deletes the
// log.
TEST_F(FailedCommit, WhatAReopenedSourceSaysOfAGrantStays) {
  const Resource resource{"a"};
  for (int round = 0; round < scaled(80); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const auto path = folder_.file(std::to_string(round) + ".db");
    bool is_held = false;
    {
      const auto source = sqlite::open_source(path);
      (void)source->draw();
      disk_.fail_at(1, SQLITE_IOERR_FSYNC, {Operation::sync});
      EXPECT_THROW((void)source->try_acquire(resource, Holder{"h"}, std::chrono::hours{1}), OutcomeUnknown);
      for (bool is_ready = false; !is_ready;) {
        try {
          is_held = source->show(resource).has_value();
          is_ready = true;
        } catch (const Unavailable&) {
          std::this_thread::sleep_for(std::chrono::milliseconds{5});
        }
      }
      disk_.crash();
    }
    disk_.restart();
    ASSERT_EQ(sqlite::open_source(path)->show(resource).has_value(), is_held);
  }
}

// The library's commit, on a connection that its caller goes on using.
TEST_F(FailedCommit, WhatAServiceSeesOfItsOwnStays) {
  for (int round = 0; round < scaled(80); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const auto path = folder_.file(std::to_string(round) + ".db");
    std::string said;
    {
      sqlite::Database database{path, sqlite::Database::Mode::create};
      sqlite::install_in(database.handle());
      sqlite::execute(database.handle(), "CREATE TABLE data (token INTEGER)");
      sqlite::Guard guard{database.handle()};
      std::optional<OpenReader> reader;
      if (round % 2 == 1) reader.emplace(path);
      const auto append = [](sqlite3* db) { sqlite::execute(db, "INSERT INTO data VALUES (1)"); };
      disk_.fail_at(1, SQLITE_IOERR_FSYNC, {Operation::sync});
      EXPECT_THROW((void)guard.write(claim_of("a", 1), append), OutcomeUnknown);
      said = query(path, "SELECT count(*) FROM data");
      disk_.crash();
    }
    disk_.restart();
    ASSERT_EQ(query(path, "SELECT count(*) FROM data"), said);
  }
}

// A process dies after a failed sync, which left its transaction in the log in the kernel's memory, and on
// the disk in part. Somebody reads the file; then others go on behind it. The power fails.
class DeadWriter : public FailedCommit {
 protected:
  // Holds the fence of 'z' at 1, and a commit of 2 whose end nobody has seen.
  void die(const std::string& path, const char* sql = "") {
    sqlite::Database database{path, sqlite::Database::Mode::create};
    // A process that dies does not copy its log.
    sqlite3_db_config(database.handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    sqlite::install_in(database.handle());
    sqlite::Guard guard{database.handle()};
    ASSERT_EQ(guard.advance(claim_of("z", 1)).verdict, Verdict::admitted);
    sqlite::Transaction tx{database.handle()};
    ASSERT_EQ(sqlite::admit_in(tx, claim_of("z", 2)).verdict, Verdict::admitted);
    sqlite::execute(database.handle(), sql);
    disk_.fail_at(1, SQLITE_IOERR_FSYNC, {Operation::sync});
    EXPECT_THROW(sqlite::execute(database.handle(), "COMMIT"), Unavailable);
  }
  // Makes the file, lets the writer die, and leaves a reader there: one that came before keeps the index in
  // which the last commit is not, one that comes after reads it from the kernel's memory.
  void prepare(const std::string& path, bool reader_is_first) {
    { const OpenStorage storage{path}; }
    if (reader_is_first) reader_.emplace(path);
    ASSERT_NO_FATAL_FAILURE(die(path));
    if (!reader_is_first) reader_.emplace(path);
  }
  void cut() {
    disk_.crash();
    reader_.reset();
  }

  std::optional<OpenReader> reader_;
};

TEST_F(DeadWriter, WhatTheNextGuardAcknowledgesIsKept) {
  for (int round = 0; round < scaled(40) && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const auto path = folder_.file(std::to_string(round) + ".db");
    ASSERT_NO_FATAL_FAILURE(prepare(path, round % 2 == 0));
    Knowledge knowledge;
    {
      const OpenStorage storage{path};
      work(storage, knowledge);
      EXPECT_EQ(knowledge.faults(), 0);
      cut();
    }
    disk_.restart();
    knowledge.check(OpenStorage{path});
  }
}

// Also where the service's transaction is admitted by what it found, and writes nothing.
TEST_F(DeadWriter, WhatTheNextServiceAcknowledgesIsKept) {
  for (int round = 0; round < scaled(80) && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const auto path = folder_.file(std::to_string(round) + ".db");
    const bool reader_is_first = round % 2 == 0;
    const bool writes = round % 4 < 2;
    ASSERT_NO_FATAL_FAILURE(prepare(path, reader_is_first));
    const std::int64_t found = reader_is_first ? 1 : 2;
    {
      sqlite::Database database{path, sqlite::Database::Mode::read_write};
      sqlite::Guard guard{database.handle()};
      ASSERT_EQ(guard.advance(claim_of("z", found)).verdict, Verdict::admitted);
      if (writes) {
        ASSERT_EQ(guard.advance(claim_of("y", 7)).verdict, Verdict::admitted);
      }
      cut();
    }
    disk_.restart();
    sqlite::Database database{path, sqlite::Database::Mode::read_write};
    sqlite::Guard guard{database.handle()};
    EXPECT_EQ(guard.advance(claim_of("z", found)).highest, found);
    EXPECT_EQ(guard.advance(claim_of("y", 1)).highest, writes ? 7 : 1);
  }
}

// The power fails while the next guard opens the file: the dead writer's transaction is there as a whole, or
// not at all.
TEST_F(DeadWriter, ACutWhileTheNextGuardOpensTearsNothing) {
  bool is_over = false;
  for (int n = 1; !is_over; n += stride) {
    ASSERT_LT(n, 1'000);
    for (int round = 0; round < scaled(6) && !HasFailure(); ++round) {
      SCOPED_TRACE("call " + std::to_string(n) + ", round " + std::to_string(round));
      const auto path = folder_.file(std::to_string(n) + "." + std::to_string(round) + ".db");
      { const OpenStorage storage{path}; }
      change(path, "CREATE TABLE data (text TEXT)");
      for (int i = 0; i < 10; ++i) change(path, "INSERT INTO data VALUES (hex(zeroblob(1500)))");
      ASSERT_NO_FATAL_FAILURE(die(path, "UPDATE data SET text = hex(randomblob(1500))"));
      disk_.fail_at(n, SQLITE_IOERR, {Operation::write, Operation::sync, Operation::truncate}, 1'000'000);
      try {
        const OpenStorage storage{path};
        is_over = disk_.failures() == 0;
        disk_.crash();
      } catch (const Error&) {
        disk_.crash();
      }
      disk_.restart();
      const OpenStorage storage{path};
      const auto highest = storage.advance(claim_of("z", 1, "late")).highest;
      EXPECT_EQ(query(path, "PRAGMA integrity_check"), "ok");
      EXPECT_EQ(query(path, "SELECT count(*) FROM data WHERE text <> hex(zeroblob(1500))"),
                highest == 2 ? "10" : "0");
    }
    if (HasFailure()) return;
  }
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
