// The fence in a service's own database: judged and recorded in the service's own transaction.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "adapters/sqlite/fences/fence_table.hpp"
#include "adapters/sqlite/file/schema.hpp"
#include "adapters/sqlite/guard.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/process/child_process.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using sqlite::admit_all_in;
using sqlite::admit_in;
using sqlite::Database;
using sqlite::execute;
using sqlite::Transaction;

class OwnDatabase : public testing::Test {
 protected:
  OwnDatabase() {
    sqlite::install_in(db());
    execute(db(),
            "CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0))");
    execute(db(), "INSERT INTO account VALUES ('42', 100)");
  }

  [[nodiscard]] sqlite3* db() const { return database_.handle(); }
  [[nodiscard]] std::optional<Fence> fence(const std::string& resource) const {
    return sqlite::FenceTable{db()}.load(resource);
  }
  [[nodiscard]] std::string balance() const { return query(path_, "SELECT balance FROM account"); }
  void set_balance(int value) {
    execute(db(), ("UPDATE account SET balance = " + std::to_string(value)).c_str());
  }

  TempDir folder_;
  const std::string path_ = folder_.file("service.db");
  Database database_{path_, Database::Mode::create};
};

TEST_F(OwnDatabase, FenceAndDataAreCommittedTogether) {
  Transaction tx{db()};
  EXPECT_EQ(admit_in(tx, claim_of("accounts/42", 34).with(Sequence{7})).verdict, Verdict::admitted);
  set_balance(70);
  EXPECT_EQ(balance(), "100");
  tx.commit();
  EXPECT_EQ(balance(), "70");
  EXPECT_EQ(fence("accounts/42")->sequence, Sequence{7});
}

TEST_F(OwnDatabase, FenceAndDataAreRolledBackTogether) {
  {
    Transaction tx{db()};
    EXPECT_EQ(admit_in(tx, claim_of("accounts/42", 34)).verdict, Verdict::admitted);
    set_balance(70);
  }
  EXPECT_EQ(balance(), "100");
  EXPECT_FALSE(fence("accounts/42"));
  Transaction tx{db()};
  EXPECT_EQ(admit_in(tx, claim_of("accounts/42", 33)).verdict, Verdict::admitted);
}

TEST_F(OwnDatabase, AfterARefusalTheTransactionCannotBeCommitted) {
  sqlite::Guard guard{db()};
  ASSERT_EQ(guard.advance(claim_of("accounts/42", 34, "b")).verdict, Verdict::admitted);
  for (const auto& claim : {claim_of("accounts/42", 33, "a"), claim_of("accounts/42", 34, "a")}) {
    Transaction tx{db()};
    EXPECT_NE(admit_in(tx, claim).verdict, Verdict::admitted);
    set_balance(0);
    EXPECT_THROW(tx.commit(), InvalidInput);
    EXPECT_EQ(balance(), "100");
  }
  // Not even if another claim is admitted afterwards.
  Transaction tx{db()};
  EXPECT_EQ(admit_in(tx, claim_of("accounts/42", 33, "a")).verdict, Verdict::stale);
  EXPECT_EQ(admit_in(tx, claim_of("accounts/43", 35, "a")).verdict, Verdict::admitted);
  set_balance(0);
  EXPECT_THROW(tx.commit(), InvalidInput);
  EXPECT_EQ(balance(), "100");
  EXPECT_FALSE(fence("accounts/43"));
}

TEST_F(OwnDatabase, ADuplicateCannotBeCommittedEither) {
  const auto claim = claim_of("accounts/42", 34).with(Sequence{1});
  sqlite::Guard guard{db()};
  EXPECT_EQ(guard.write(claim, [this](sqlite3*) { set_balance(70); }).verdict, Verdict::admitted);
  EXPECT_EQ(guard.write(claim, [this](sqlite3*) { set_balance(40); }).verdict, Verdict::duplicate);
  Transaction tx{db()};
  EXPECT_EQ(admit_in(tx, claim).verdict, Verdict::duplicate);
  set_balance(40);
  EXPECT_THROW(tx.commit(), InvalidInput);
  EXPECT_EQ(balance(), "70");
}

TEST_F(OwnDatabase, AClaimThatCouldNotBeJudgedLeavesNothingToCommit) {
  {
    Transaction tx{db(), 100};
    EXPECT_THROW((void)admit_in(tx, claim_of("accounts/42", 101)), Implausible);
    set_balance(0);
    EXPECT_THROW(tx.commit(), InvalidInput);
  }
  {
    Transaction tx{db()};
    const std::vector<Claim> twice{claim_of("accounts/42", 34), claim_of("accounts/42", 35)};
    EXPECT_THROW((void)admit_all_in(tx, twice), InvalidInput);
    set_balance(0);
    EXPECT_THROW(tx.commit(), InvalidInput);
  }
  execute(db(), "DELETE FROM fenceguard_namespace");
  {
    Transaction tx{db()};
    EXPECT_THROW((void)admit_in(tx, claim_of("accounts/42", 34)), Unavailable);
    set_balance(0);
    EXPECT_THROW(tx.commit(), InvalidInput);
  }
  EXPECT_EQ(balance(), "100");
}

TEST_F(OwnDatabase, SeveralClaimsAreAdmittedAllOrNone) {
  sqlite::Guard guard{db()};
  ASSERT_EQ(guard.advance(claim_of("b", 34)).verdict, Verdict::admitted);
  {
    Transaction tx{db()};
    const std::vector<Claim> claims{claim_of("a", 35), claim_of("b", 33), claim_of("c", 35)};
    const auto rulings = admit_all_in(tx, claims);
    ASSERT_EQ(rulings.size(), 3u);
    EXPECT_EQ(rulings[0].verdict, Verdict::admitted);
    EXPECT_EQ(rulings[1].verdict, Verdict::stale);
    EXPECT_EQ(rulings[1].highest, 34);
    EXPECT_EQ(rulings[2].verdict, Verdict::admitted);
    EXPECT_THROW(tx.commit(), InvalidInput);
  }
  EXPECT_FALSE(fence("a"));
  EXPECT_FALSE(fence("c"));
  Transaction tx{db()};
  const std::vector<Claim> claims{claim_of("c", 35), claim_of("b", 35), claim_of("a", 35)};
  for (const auto& ruling : admit_all_in(tx, claims)) EXPECT_EQ(ruling.verdict, Verdict::admitted);
  tx.commit();
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(fence(name), fence_of(35));
  EXPECT_EQ(query(path_, "SELECT resources || ' ' || highest FROM fenceguard_namespace"), "3 35");
}

TEST_F(OwnDatabase, WhatTheServiceThrowsRollsBackFenceAndData) {
  sqlite::Guard guard{db()};
  const auto claim = claim_of("accounts/42", 34);
  EXPECT_THROW((void)guard.write(claim, [this](sqlite3*) { set_balance(-1); }), Unavailable);
  EXPECT_EQ(balance(), "100");
  EXPECT_FALSE(fence("accounts/42"));
  EXPECT_EQ(guard.write(claim, [this](sqlite3*) { set_balance(1); }).verdict, Verdict::admitted);
}

// A statement that ends the transaction by itself takes the admission with it; what comes after it is not
// ours to commit, and its end is not claimed to be known.
TEST_F(OwnDatabase, ATransactionThatEndedByItselfIsNotReportedAsDone) {
  Transaction tx{db()};
  EXPECT_EQ(admit_in(tx, claim_of("accounts/42", 34)).verdict, Verdict::admitted);
  EXPECT_THROW(execute(db(), "INSERT OR ROLLBACK INTO account VALUES ('42', 1)"), Unavailable);
  EXPECT_THROW(tx.commit(), OutcomeUnknown);
  EXPECT_FALSE(fence("accounts/42"));
}

TEST_F(OwnDatabase, AnAdmissionThatASavepointTookBackCannotBeCommitted) {
  sqlite::Guard guard{db()};
  ASSERT_EQ(guard.advance(claim_of("b", 34)).verdict, Verdict::admitted);
  for (const auto& claim : {claim_of("a", 34), claim_of("b", 35), claim_of("b", 34).with(Sequence{1})}) {
    Transaction tx{db()};
    execute(db(), "SAVEPOINT mine");
    EXPECT_EQ(admit_in(tx, claim).verdict, Verdict::admitted);
    execute(db(), "ROLLBACK TO mine");
    set_balance(0);
    EXPECT_THROW(tx.commit(), InvalidInput);
    EXPECT_EQ(balance(), "100");
  }
  Transaction tx{db()};
  EXPECT_EQ(admit_in(tx, claim_of("a", 34)).verdict, Verdict::admitted);
  execute(db(), "SAVEPOINT mine");
  set_balance(0);
  execute(db(), "ROLLBACK TO mine");
  set_balance(70);
  tx.commit();
  EXPECT_EQ(balance(), "70");
}

TEST_F(OwnDatabase, AnOpenTransactionIsRefused) {
  execute(db(), "BEGIN");
  EXPECT_THROW(Transaction{db()}, InvalidInput);
  execute(db(), "ROLLBACK");
}

TEST_F(OwnDatabase, TablesThatAreNotThereMakeItUnavailable) {
  Database bare{folder_.file("bare.db"), Database::Mode::create};
  Transaction tx{bare.handle()};
  EXPECT_THROW((void)admit_in(tx, claim_of("a", 1)), Unavailable);
}

TEST_F(OwnDatabase, InstallingAgainChangesNothing) {
  sqlite::Guard guard{db()};
  ASSERT_EQ(guard.advance(claim_of("a", 34)).verdict, Verdict::admitted);
  sqlite::install_in(db());
  EXPECT_EQ(fence("a"), fence_of(34));
}

TEST_F(OwnDatabase, TheSqlThatIsInstalledByHandWorksLikeInstalling) {
  const auto path = folder_.file("by_hand.db");
  change(path, sqlite::install_sql());
  Database other{path, Database::Mode::read_write};
  sqlite::Guard guard{other.handle()};
  EXPECT_EQ(guard.advance(claim_of("a", 34)).verdict, Verdict::admitted);
  EXPECT_EQ(guard.advance(claim_of("a", 33)).verdict, Verdict::stale);
  sqlite::install_in(other.handle());
  EXPECT_EQ(guard.advance(claim_of("a", 33)).verdict, Verdict::stale);
}

// A commit is durable whatever the connection was set to: in a rollback journal's mode that takes EXTRA,
// because a journal whose removal was not synced is rolled back after a power cut.
TEST_F(OwnDatabase, ALowerSynchronousSettingIsLifted) {
  for (const char* journal : {"PRAGMA journal_mode = WAL", "PRAGMA journal_mode = DELETE"}) {
    for (const char* setting :
         {"PRAGMA synchronous = OFF", "PRAGMA synchronous = NORMAL", "PRAGMA synchronous = FULL"}) {
      execute(db(), journal);
      execute(db(), setting);
      { Transaction tx{db()}; }
      sqlite::Statement lifted{db(), "PRAGMA synchronous"};
      ASSERT_TRUE(lifted.bind().step());
      const bool is_wal = std::string_view{journal}.find("WAL") != std::string_view::npos;
      EXPECT_GE(lifted.integer(0), is_wal ? 2 : 3) << journal << ", " << setting;
    }
  }
}

TEST_F(OwnDatabase, ItWorksInARollbackJournalToo) {
  execute(db(), "PRAGMA journal_mode = DELETE");
  sqlite::Guard guard{db()};
  const auto write = [this](sqlite3*) { set_balance(70); };
  EXPECT_EQ(guard.write(claim_of("accounts/42", 34), write).verdict, Verdict::admitted);
  EXPECT_EQ(guard.write(claim_of("accounts/42", 33), write).verdict, Verdict::stale);
}

// A guard keeps fences in memory and would not see this transaction's.
TEST_F(OwnDatabase, BesideARunningGuardNothingIsAdmitted) {
  const OpenStorage guard{path_};
  EXPECT_THROW(Transaction{db()}, Unavailable);
}

TEST_F(OwnDatabase, DuringATransactionNoGuardBegins) {
  sqlite::Guard guard{db()};
  ASSERT_EQ(guard.advance(claim_of("a", 34)).verdict, Verdict::admitted);
  {
    Transaction tx{db()};
    EXPECT_EQ(admit_in(tx, claim_of("a", 35)).verdict, Verdict::admitted);
    EXPECT_THROW(OpenStorage{path_}, Unavailable);
    tx.commit();
  }
  const OpenStorage storage{path_};
  EXPECT_EQ(storage.advance(claim_of("a", 34)).verdict, Verdict::stale);
}

// A record that came and went: seen as absent, made by another, dropped by a compaction of a third, and not
// forgotten.
TEST_F(OwnDatabase, ARecordThatCameAndWentBetweenLookAndWriteIsFoundInTheFloor) {
  EXPECT_FALSE(fence("a"));
  {
    const OpenStorage other{path_};
    EXPECT_EQ(other.put(claim_of("a", 10, "y"), "ten").ruling.verdict, Verdict::admitted);
    EXPECT_EQ(other.compact(11).dropped, 1);
  }
  EXPECT_FALSE(fence("a"));
  sqlite::Guard guard{db()};
  EXPECT_EQ(guard.write(claim_of("a", 9, "x"), [this](sqlite3*) { set_balance(0); }).verdict, Verdict::stale);
  EXPECT_EQ(guard.advance(claim_of("a", 10, "y")).verdict, Verdict::stale);
  EXPECT_EQ(guard.advance(claim_of("a", 11, "z")).verdict, Verdict::admitted);
  EXPECT_EQ(balance(), "100");
}

// Two processes write with rising tokens; in the order of commits no write of a lower token follows a higher
// one.
TEST_F(OwnDatabase, TwoProcessesThatRaceNeverWriteBelowAHigherToken) {
  execute(db(), "CREATE TABLE log (place INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT, token INTEGER)");
  const std::string count = std::to_string(scaled(400));
  ChildProcess odd{{"race", path_, "1", "2", count}};
  ChildProcess even{{"race", path_, "2", "2", count}};
  const int admitted = std::stoi(odd.read_line().value()) + std::stoi(even.read_line().value());
  std::map<std::string, std::int64_t> highest;
  int logged = 0;
  sqlite::Statement rows{db(), "SELECT resource, token FROM log ORDER BY place"};
  rows.bind();
  while (rows.step()) {
    ++logged;
    auto& last = highest[std::string{rows.text(0)}];
    EXPECT_GE(rows.integer(1), last) << "write " << logged;
    last = std::max(last, rows.integer(1));
  }
  EXPECT_EQ(logged, admitted);
  EXPECT_GT(logged, 0);
  for (const auto& [resource, token] : highest) EXPECT_EQ(fence(resource)->token.value(), token);
}

}  // namespace
}  // namespace fenceguard::test
