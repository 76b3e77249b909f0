// Optimistic fencing with the user's own table.

#include "adapters/mariadb/versioned_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "adapters/mariadb/errors.hpp"
#include "guard/error.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/judge_cases.hpp"
#include "tests/mariadb/database.hpp"

namespace fenceguard::mariadb::test {
namespace {

using fenceguard::test::judge_cases;
using fenceguard::test::scaled;
using testing::HasSubstr;

class WithTable : public testing::Test {
 protected:
  WithTable() {
    database_.run(
        "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL CHECK (balance >= 0), note "
        "TEXT, "
        "version BIGINT NOT NULL DEFAULT 0, token BIGINT, holder VARCHAR(128)) ENGINE = InnoDB");
    database_.run("INSERT INTO account (id, balance) VALUES (42, 100)");
  }

  Database database_{Database::Fences::missing};
};

class Versioned : public WithTable {
 protected:
  static Claim claim(std::int64_t token, const std::string& holder = "h") {
    return {Resource{"accounts/42"}, Token{token}, Holder{holder}, std::nullopt};
  }
  [[nodiscard]] VersionedTableNames names(const std::string& holder = "holder") const {
    return {database_.name(), "account", {"id"}, "version", "token", holder};
  }
  [[nodiscard]] std::string row() const {
    return *database_.run("SELECT CONCAT_WS(' ', balance, version, token, holder) FROM account")[0][0];
  }
  std::string objection(const VersionedTableNames& named) {
    try {
      const VersionedTable table{connection_, named};
      return "";
    } catch (const InvalidInput& error) {
      return error.what();
    }
  }

  Connection connection_{database_.connect()};
  VersionedTable accounts_{connection_, names()};
};

TEST_F(Versioned, FiveAnswersAreToldApart) {
  const auto seen = accounts_.fenced_read(connection_, claim(34), {"42"});
  ASSERT_EQ(seen.verdict, RowVerdict::admitted);
  EXPECT_EQ(seen.row->values.at("balance"), "100");
  EXPECT_EQ(seen.row->values.at("token"), "34");
  EXPECT_EQ(seen.row->values.at("note"), std::nullopt);
  const auto done =
      accounts_.update(connection_, claim(34), *seen.row, {{"balance", "70"}, {"note", "x?'\\"}});
  EXPECT_EQ(done.verdict, RowVerdict::admitted);
  EXPECT_EQ(row(), "70 1 34 h");
  EXPECT_EQ(accounts_.read(connection_, {"42"})->values.at("note"), "x?'\\");

  const auto again = accounts_.update(connection_, claim(34), *seen.row, {{"balance", "60"}});
  EXPECT_EQ(again.verdict, RowVerdict::version_conflict);
  EXPECT_EQ(again.version, "1");
  const auto fresh = *accounts_.read(connection_, {"42"});
  const auto conflict = accounts_.update(connection_, claim(34, "other"), fresh, {{"balance", "60"}});
  EXPECT_EQ(conflict.verdict, RowVerdict::conflict);
  EXPECT_EQ(accounts_.update(connection_, claim(34, "H"), fresh, {}).verdict, RowVerdict::conflict)
      << "bytes";
  const auto stale = accounts_.update(connection_, claim(33), fresh, {{"balance", "60"}});
  EXPECT_EQ(stale.verdict, RowVerdict::stale);
  EXPECT_EQ(stale.highest, 34);
  EXPECT_EQ(accounts_.fenced_read(connection_, claim(33), {"42"}).verdict, RowVerdict::stale);
  EXPECT_EQ(accounts_.fenced_read(connection_, claim(34, "other"), {"42"}).verdict, RowVerdict::conflict);
  EXPECT_EQ(accounts_.fenced_read(connection_, claim(34), {"42"}).verdict, RowVerdict::admitted) << "again";
  EXPECT_EQ(row(), "70 1 34 h");

  database_.run("DELETE FROM account");
  EXPECT_EQ(accounts_.update(connection_, claim(35), fresh, {}).verdict, RowVerdict::not_found);
  EXPECT_EQ(accounts_.fenced_read(connection_, claim(35), {"42"}).verdict, RowVerdict::not_found);
  EXPECT_FALSE(accounts_.read(connection_, {"42"}));
}

// Of the shared table of cases: those that a row can hold, which has no floor, no sequence and is never
// closed.
TEST_F(Versioned, ARowIsJudgedAsTheSharedTableSays) {
  int count = 0;
  for (const auto& expected : judge_cases()) {
    const auto& record = expected.view.record;
    const auto given = expected.claim("accounts/42");
    if (expected.view.floor > 0 || given.sequence || (record && (record->closed || record->sequence)))
      continue;
    SCOPED_TRACE("line " + std::to_string(expected.line));
    ++count;
    for (const bool is_read : {true, false}) {
      database_.run("UPDATE account SET balance = 100, token = ?, holder = ?",
                    record ? mariadb::Row{to_string(record->token), record->holder.id()}
                           : mariadb::Row{std::nullopt, std::nullopt});
      const auto before = *accounts_.read(connection_, {"42"});
      const auto verdict = is_read
                               ? accounts_.fenced_read(connection_, given, {"42"}).verdict
                               : accounts_.update(connection_, given, before, {{"balance", "70"}}).verdict;
      EXPECT_STREQ(to_string(verdict), fenceguard::to_string(expected.verdict));
      const bool is_written = expected.verdict == Verdict::admitted && !is_read;
      const auto after = *accounts_.read(connection_, {"42"});
      EXPECT_EQ(after.values.at("balance"), is_written ? "70" : "100");
      EXPECT_EQ(after.version == before.version, !is_written);
      if (expected.after) {
        EXPECT_EQ(after.values.at("token"), to_string(expected.after->token));
        EXPECT_EQ(after.values.at("holder"), expected.after->holder.id());
      }
    }
  }
  EXPECT_GT(count, 5);
}

TEST_F(Versioned, WithoutAHolderColumnAConflictCannotBeTold) {
  const VersionedTable table{connection_, names("")};
  const auto seen = *table.read(connection_, {"42"});
  ASSERT_EQ(table.update(connection_, claim(34, "a"), seen, {{"balance", "70"}}).verdict,
            RowVerdict::admitted);
  const auto next = *table.read(connection_, {"42"});
  EXPECT_EQ(table.update(connection_, claim(34, "b"), next, {}).verdict, RowVerdict::admitted);
  EXPECT_EQ(table.update(connection_, claim(33, "b"), next, {}).verdict, RowVerdict::stale);
}

TEST_F(Versioned, ATimeIsAVersionInEveryTimeZone) {
  database_.run("ALTER TABLE account DROP version, ADD version DATETIME(6) NOT NULL DEFAULT '2999-01-01'");
  connection_.run("SET time_zone = '+05:45'");
  const VersionedTable table{connection_, names()};
  auto seen = *table.read(connection_, {"42"});
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(table.update(connection_, claim(34), seen, {{"balance", "70"}}).verdict, RowVerdict::admitted);
    EXPECT_EQ(table.update(connection_, claim(34), seen, {}).verdict, RowVerdict::version_conflict);
    const auto next = *table.read(connection_, {"42"});
    ASSERT_GT(next.version, seen.version);
    seen = next;
  }
}

TEST_F(Versioned, AnyNameAndACompositeKeyWork) {
  database_.run(
      "CREATE TABLE `My ``Odd`` select.tab'le` (`user` VARCHAR(20), `Day` DATE, `vers ion` INT UNSIGNED NOT "
      "NULL, "
      "`select` BIGINT, `a ``b``` VARBINARY(128), `ä?` TEXT, PRIMARY KEY (`Day`, `user`)) ENGINE = InnoDB");
  database_.run("INSERT INTO `My ``Odd`` select.tab'le` VALUES ('it''s', '2026-01-02', 5, NULL, NULL, NULL)");
  const VersionedTable odd{
      connection_,
      {database_.name(), "My `Odd` select.tab'le", {"user", "Day"}, "vers ion", "select", "a `b`"}};
  const VersionedTable::Key key{"it's", "2026-01-02"};
  const auto seen = odd.fenced_read(connection_, claim(34), key);
  ASSERT_EQ(seen.verdict, RowVerdict::admitted);
  EXPECT_EQ(odd.update(connection_, claim(34), *seen.row, {{"ä?", R"(a\'?)"}}).verdict, RowVerdict::admitted);
  EXPECT_EQ(odd.read(connection_, key)->values.at("ä?"), R"(a\'?)");
  EXPECT_EQ(odd.fenced_read(connection_, claim(35), {"its", "2026-01-02"}).verdict, RowVerdict::not_found);
}

TEST_F(Versioned, NamesThatDoNotFitAreRefusedWithASentence) {
  database_.run(
      "ALTER TABLE account ADD at_second DATETIME NOT NULL DEFAULT NOW(), ADD stamp TIMESTAMP(6) NOT NULL "
      "DEFAULT "
      "NOW(6), ADD few SMALLINT NOT NULL DEFAULT 0, ADD loose BIGINT, ADD brief VARCHAR(9), ADD part BIGINT, "
      "ADD UNIQUE (loose), ADD UNIQUE "
      "(balance, part)");
  database_.run(
      "CREATE TABLE old_account (id BIGINT PRIMARY KEY, version BIGINT NOT NULL, token BIGINT) ENGINE = "
      "MyISAM");
  const auto with = [&](auto change) {
    auto named = names();
    change(named);
    return objection(named);
  };
  EXPECT_EQ(objection(names()), "");
  EXPECT_THAT(with([](auto& n) { n.table = "gone"; }), HasSubstr("no table"));
  EXPECT_THAT(with([](auto& n) { n.table = "old_account"; }), HasSubstr("MyISAM"));
  EXPECT_THAT(with([](auto& n) { n.version = "gone"; }), HasSubstr("no column gone"));
  EXPECT_THAT(with([](auto& n) { n.version = "note"; }), HasSubstr("an INT, a BIGINT or a DATETIME(6)"));
  EXPECT_THAT(with([](auto& n) { n.version = "loose"; }), HasSubstr("NOT NULL"));
  EXPECT_THAT(with([](auto& n) { n.version = "stamp"; }), HasSubstr("an INT, a BIGINT or a DATETIME(6)"));
  EXPECT_THAT(with([](auto& n) { n.version = "few"; }), HasSubstr("an INT, a BIGINT or a DATETIME(6)"));
  EXPECT_THAT(with([](auto& n) { n.version = "at_second"; }), HasSubstr("would have one version"));
  EXPECT_THAT(with([](auto& n) { n.token = "note"; }), HasSubstr("is a BIGINT"));
  EXPECT_THAT(with([](auto& n) { n.holder = "brief"; }), HasSubstr("128 bytes"));
  EXPECT_THAT(with([](auto& n) { n.key = {"balance"}; }), HasSubstr("unique"));
  EXPECT_THAT(with([](auto& n) { n.key = {"loose"}; }), HasSubstr("unique"));
  EXPECT_THAT(with([](auto& n) { n.key = {}; }), HasSubstr("at least one"));
  EXPECT_THAT(with([](auto& n) { n.token = "version"; }), HasSubstr("cannot be two"));
  connection_.run("SET sql_mode = ''");
  EXPECT_THAT(objection(names()), HasSubstr("strict mode"));
}

TEST_F(Versioned, ValuesThatDoNotFitAreRefusedAndWriteNothing) {
  const auto seen = *accounts_.read(connection_, {"42"});
  EXPECT_THROW((void)accounts_.read(connection_, {std::nullopt}), InvalidInput);
  EXPECT_THROW((void)accounts_.read(connection_, {"42", "43"}), InvalidInput);
  EXPECT_THROW((void)accounts_.read(connection_, {"42 OR 1"}), InvalidInput);
  const auto change = [&](const VersionedTable::Changes& changes) {
    return accounts_.update(connection_, claim(34), seen, changes);
  };
  for (const auto* name : {"gone", "version", "token", "holder", "id"})
    EXPECT_THROW((void)change({{name, "9"}}), InvalidInput) << name;
  EXPECT_THROW((void)change({{"note", "9"}, {"note", "8"}}), InvalidInput);
  EXPECT_THROW((void)change({{"balance", "many"}}), InvalidInput);
  EXPECT_THROW((void)change({{"balance", "99999999999999999999"}}), InvalidInput);
  EXPECT_THROW((void)change({{"balance", std::nullopt}}), InvalidInput);
  EXPECT_THROW((void)change({{"balance", "-1"}}), ServerError) << "the table's own constraint";
  EXPECT_EQ(row(), "100 0");
}

TEST_F(Versioned, ASessionThatChainsTransactionsIsLeftOutsideOfOne) {
  connection_.run("SET completion_type = 'CHAIN'");
  EXPECT_EQ(accounts_.fenced_read(connection_, claim(35), {"42"}).verdict, RowVerdict::admitted);
  EXPECT_FALSE(connection_.is_in_transaction());
}

// The error says nothing of the transaction, which the statement had committed before it failed.
TEST_F(Versioned, ATransactionThatAnErrorEndedIsNotTakenForOpen) {
  const auto seen = *accounts_.read(connection_, {"42"});
  for (const bool is_read : {true, false}) {
    connection_.run("START TRANSACTION");
    EXPECT_THROW(connection_.run("CREATE TABLE account (id INT)"), ServerError);
    EXPECT_EQ(is_read ? accounts_.fenced_read(connection_, claim(35), {"42"}).verdict
                      : accounts_.update(connection_, claim(35), seen, {{"balance", "70"}}).verdict,
              RowVerdict::admitted);
    EXPECT_FALSE(connection_.is_in_transaction());
  }
  EXPECT_EQ(row(), "70 1 35 h");
  connection_.run("START TRANSACTION");
  EXPECT_THROW(connection_.run("CREATE TABLE account (id INT)"), ServerError);
  EXPECT_EQ(accounts_.fenced_read(connection_, claim(34), {"42"}).verdict, RowVerdict::stale);
  EXPECT_FALSE(connection_.is_in_transaction())
      << "a refusal dooms the caller's transaction, and there is none";
}

TEST_F(Versioned, InATransactionARefusalDoomsIt) {
  const auto seen = *accounts_.read(connection_, {"42"});
  ASSERT_EQ(accounts_.fenced_read(connection_, claim(35), {"42"}).verdict, RowVerdict::admitted);
  for (const bool is_read : {true, false}) {
    connection_.run("START TRANSACTION");
    connection_.run("UPDATE account SET note = 'x'");
    EXPECT_EQ(is_read ? accounts_.fenced_read(connection_, claim(34), {"42"}).verdict
                      : accounts_.update(connection_, claim(34), seen, {{"balance", "1"}}).verdict,
              RowVerdict::stale);
    EXPECT_THROW(connection_.run("UPDATE account SET balance = 1"), ServerError);
    connection_.run("COMMIT");
    EXPECT_EQ(row(), "100 0 35 h");
  }
  EXPECT_FALSE(accounts_.read(connection_, {"42"})->values.at("note"));
}

TEST_F(Versioned, AnOldSnapshotDecidesNothing) {
  const auto seen = *accounts_.read(connection_, {"42"});
  connection_.run("START TRANSACTION WITH CONSISTENT SNAPSHOT");
  auto other = database_.connect();
  ASSERT_EQ(accounts_.fenced_read(other, claim(35), {"42"}).verdict, RowVerdict::admitted);
  EXPECT_EQ(accounts_.update(connection_, claim(34), seen, {{"balance", "70"}}).verdict, RowVerdict::stale);
  EXPECT_EQ(row(), "100 0 35 h");
}

// G1 and G3 for one row: all take over from each other, read fenced and raise the balance by one.
TEST_F(Versioned, NoUpdateIsLostAndNoTokenFallsUnderConcurrency) {
  database_.run(
      "CREATE TRIGGER refuse_fall BEFORE UPDATE ON account FOR EACH ROW IF NEW.token < OLD.token - 1 OR "
      "NEW.version < "
      "OLD.version THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'it fell'; END IF");
  std::atomic<std::int64_t> next{1};
  std::atomic<int> admitted{0};
  std::atomic<int> refused{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      auto connection = database_.connect();
      for (int turn = 0; turn < scaled(60); ++turn) {
        const auto given = claim(next++, "h" + std::to_string(i));
        const auto seen = accounts_.fenced_read(connection, given, {"42"});
        if (seen.verdict != RowVerdict::admitted) continue;
        const auto balance = std::stoi(*seen.row->values.at("balance")) + 1;
        const auto done =
            accounts_.update(connection, given, *seen.row, {{"balance", std::to_string(balance)}});
        (done.verdict == RowVerdict::admitted ? admitted : refused) += 1;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(accounts_.read(connection_, {"42"})->values.at("balance"), std::to_string(100 + admitted));
  EXPECT_GT(admitted, 0);
}

}  // namespace
}  // namespace fenceguard::mariadb::test
