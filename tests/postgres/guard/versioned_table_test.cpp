// Optimistic fencing with the user's own table.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "adapters/postgres/pqxx_versions.hpp"
#include "adapters/postgres/versioned_table.hpp"
#include "guard/error.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/judge_cases.hpp"
#include "tests/postgres/database.hpp"

namespace fenceguard::test {
namespace {

using postgres::RowVerdict;
using postgres::VersionedTable;
using postgres::VersionedTableNames;

class Versioned : public testing::Test {
 protected:
  Versioned() {
    database_.run(
        "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0), note "
        "text,"
        " version bigint NOT NULL DEFAULT 0, token bigint, holder text);"
        "INSERT INTO account VALUES (42, 100)");
    connection_ = database_.connect();
  }

  static Claim claim(std::int64_t token, const std::string& holder = "h") {
    return {Resource{"accounts/42"}, Token{token}, Holder{holder}, std::nullopt};
  }

  static VersionedTableNames names(const std::string& holder = "holder") {
    return {.table = "account", .key = {"id"}, .version = "version", .token = "token", .holder = holder};
  }

  [[nodiscard]] VersionedTable table(const std::string& holder = "holder") const {
    return {*connection_, names(holder)};
  }

  [[nodiscard]] std::string row() const {
    return database_.ask("SELECT format('%s %s %s %s', balance, version, token, holder) FROM account");
  }

  // What the constructor objects to.
  std::string objection(const VersionedTableNames& named) {
    try {
      const VersionedTable table{*connection_, named};
      return "";
    } catch (const InvalidInput& error) {
      return error.what();
    }
  }

  Database database_{Database::Fences::missing};
  std::unique_ptr<pqxx::connection> connection_;
};

TEST_F(Versioned, FiveAnswersAreToldApart) {
  const auto accounts = table();
  const auto seen = accounts.fenced_read(*connection_, claim(34), {"42"});
  ASSERT_EQ(seen.verdict, RowVerdict::admitted);
  EXPECT_EQ(seen.row->values.at("balance"), "100");
  EXPECT_EQ(seen.row->values.at("note"), std::nullopt);
  const auto done = accounts.update(*connection_, claim(34), *seen.row, {{"balance", "70"}, {"note", "x"}});
  EXPECT_EQ(done.verdict, RowVerdict::admitted);
  EXPECT_EQ(done.version, "1");
  EXPECT_EQ(row(), "70 1 34 h");

  const auto again = accounts.update(*connection_, claim(34), *seen.row, {{"balance", "60"}});
  EXPECT_EQ(again.verdict, RowVerdict::version_conflict);
  EXPECT_EQ(again.version, "1");
  const auto fresh = *accounts.read(*connection_, {"42"});
  const auto conflict = accounts.update(*connection_, claim(34, "other"), fresh, {{"balance", "60"}});
  EXPECT_EQ(conflict.verdict, RowVerdict::conflict);
  EXPECT_EQ(conflict.highest, 34);
  const auto stale = accounts.update(*connection_, claim(33), fresh, {{"balance", "60"}});
  EXPECT_EQ(stale.verdict, RowVerdict::stale);
  EXPECT_EQ(stale.highest, 34);
  EXPECT_EQ(accounts.fenced_read(*connection_, claim(33), {"42"}).verdict, RowVerdict::stale);
  EXPECT_EQ(accounts.fenced_read(*connection_, claim(34, "other"), {"42"}).verdict, RowVerdict::conflict);
  EXPECT_EQ(row(), "70 1 34 h");

  database_.run("DELETE FROM account");
  EXPECT_EQ(accounts.update(*connection_, claim(35), fresh, {}).verdict, RowVerdict::not_found);
  EXPECT_EQ(accounts.fenced_read(*connection_, claim(35), {"42"}).verdict, RowVerdict::not_found);
  EXPECT_FALSE(accounts.read(*connection_, {"42"}));
}

// Of the shared table of cases: those that a row can hold, which has no floor, no sequence and is never
// closed.
TEST_F(Versioned, ARowIsJudgedAsTheSharedTableSays) {
  const auto accounts = table();
  int count = 0;
  for (const auto& expected : judge_cases()) {
    const auto& record = expected.view.record;
    const auto given = expected.claim("accounts/42");
    if (expected.view.floor > 0 || given.sequence || (record && (record->closed || record->sequence)))
      continue;
    SCOPED_TRACE("line " + std::to_string(expected.line));
    ++count;
    pqxx::nontransaction{*connection_}.exec(
        record ? fmt::format("UPDATE account SET balance = 100, token = {}, holder = '{}'",
                             record->token.value(), record->holder.id())
               : "UPDATE account SET balance = 100, token = NULL, holder = NULL");
    const auto before = *accounts.read(*connection_, {"42"});
    EXPECT_STREQ(
        postgres::to_string(accounts.update(*connection_, given, before, {{"balance", "70"}}).verdict),
        to_string(expected.verdict));
    const bool is_admitted = expected.verdict == Verdict::admitted;
    const auto after = *accounts.read(*connection_, {"42"});
    EXPECT_EQ(after.values.at("balance"), is_admitted ? "70" : "100");
    EXPECT_EQ(after.version == before.version, !is_admitted);
    if (expected.after) {
      EXPECT_EQ(after.values.at("token"), to_string(expected.after->token));
      EXPECT_EQ(after.values.at("holder"), expected.after->holder.id());
    }
  }
  EXPECT_GT(count, 5);
}

TEST_F(Versioned, WithoutAHolderColumnAConflictCannotBeTold) {
  const auto accounts = table("");
  const auto seen = *accounts.read(*connection_, {"42"});
  const auto first = accounts.update(*connection_, claim(34, "a"), seen, {{"balance", "70"}});
  ASSERT_EQ(first.verdict, RowVerdict::admitted);
  const auto next = *accounts.read(*connection_, {"42"});
  EXPECT_EQ(accounts.update(*connection_, claim(34, "b"), next, {{"balance", "60"}}).verdict,
            RowVerdict::admitted);
  EXPECT_EQ(accounts.update(*connection_, claim(33, "b"), next, {}).verdict, RowVerdict::stale);
}

TEST_F(Versioned, ATimestampIsAVersionUnderEverySessionSetting) {
  database_.run("ALTER TABLE account DROP version, ADD version timestamptz NOT NULL DEFAULT '2999-01-01'");
  pqxx::nontransaction{*connection_}.exec("SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Kathmandu'");
  const auto accounts = table();
  auto seen = *accounts.read(*connection_, {"42"});
  for (int round = 0; round < 5; ++round) {
    const auto done = accounts.update(*connection_, claim(34), seen, {{"balance", "70"}});
    ASSERT_EQ(done.verdict, RowVerdict::admitted);
    ASSERT_GT(done.version, seen.version);
    EXPECT_EQ(accounts.update(*connection_, claim(34), seen, {}).verdict, RowVerdict::version_conflict);
    seen = *accounts.read(*connection_, {"42"});
    EXPECT_EQ(seen.version, done.version);
  }
}

TEST_F(Versioned, AnyNameAndACompositeKeyWork) {
  const std::string long_name(63, 'n');
  const std::string table_name = R"(My "Odd" select.tab'le)";
  const auto quoted = R"("My ""Odd"" select.tab'le")";
  database_.run(fmt::format(
      R"(CREATE SCHEMA "Sch ema"; CREATE TABLE "Sch ema".{0} ("user" text, "Day" date, "{1}" bigint NOT NULL,
      "select" bigint, "a ""b""" text, "$1" text, PRIMARY KEY ("Day", "user"));
      INSERT INTO "Sch ema".{0} VALUES ('it''s', '2026-01-02', 5))",
      quoted, long_name));
  const VersionedTable odd{*connection_,
                           {.schema = "Sch ema",
                            .table = table_name,
                            .key = {"user", "Day"},
                            .version = long_name,
                            .token = "select",
                            .holder = R"(a "b")"}};
  const VersionedTable::Key key{"it's", "2026-01-02"};
  const auto seen = odd.fenced_read(*connection_, claim(34), key);
  ASSERT_EQ(seen.verdict, RowVerdict::admitted);
  EXPECT_EQ(odd.update(*connection_, claim(34), *seen.row, {{"$1", R"(a\'$2)"}}).version, "6");
  EXPECT_EQ(odd.read(*connection_, key)->values.at("$1"), R"(a\'$2)");
  EXPECT_EQ(odd.fenced_read(*connection_, claim(35), {"its", "2026-01-02"}).verdict, RowVerdict::not_found);
}

TEST_F(Versioned, NamesThatDoNotFitAreRefusedWithASentence) {
  using testing::HasSubstr;
  database_.run(
      "CREATE VIEW seen AS SELECT * FROM account; ALTER TABLE account ADD short timestamptz(0) NOT NULL "
      "DEFAULT now(), ADD loose bigint, ADD fixed char(9)");
  const auto with = [](auto change) {
    auto named = names();
    change(named);
    return named;
  };
  EXPECT_EQ(objection(names()), "");
  EXPECT_THAT(objection(with([](auto& n) { n.table = "Account"; })), HasSubstr("no table Account"));
  EXPECT_THAT(objection(with([](auto& n) { n.schema = "x"; })), HasSubstr("no table x.account"));
  EXPECT_THAT(objection(with([](auto& n) { n.table = "seen"; })), HasSubstr("not a table"));
  EXPECT_THAT(objection(with([](auto& n) { n.version = "gone"; })), HasSubstr("no column gone"));
  EXPECT_THAT(objection(with([](auto& n) { n.version = "note"; })), HasSubstr("must be a bigint or"));
  EXPECT_THAT(objection(with([](auto& n) { n.version = "loose"; })), HasSubstr("NOT NULL"));
  EXPECT_THAT(objection(with([](auto& n) { n.version = "short"; })), HasSubstr("timestamp(0)"));
  EXPECT_THAT(objection(with([](auto& n) { n.token = "note"; })), HasSubstr("must be a bigint"));
  EXPECT_THAT(objection(with([](auto& n) { n.holder = "fixed"; })), HasSubstr("must be a text"));
  EXPECT_THAT(objection(with([](auto& n) { n.key = {"balance"}; })), HasSubstr("unique"));
  EXPECT_THAT(objection(with([](auto& n) { n.key = {"gone"}; })), HasSubstr("no column gone"));
  EXPECT_THAT(objection(with([](auto& n) { n.key = {}; })), HasSubstr("no columns"));
  EXPECT_THAT(objection(with([](auto& n) { n.token = "version"; })), HasSubstr("cannot be two"));
  EXPECT_THAT(objection(with([](auto& n) { n.table = std::string(64, 'n'); })), HasSubstr("63 bytes"));
}

TEST_F(Versioned, ValuesThatDoNotFitAreRefusedAndWriteNothing) {
  const auto accounts = table();
  const auto seen = *accounts.read(*connection_, {"42"});
  EXPECT_THROW((void)accounts.read(*connection_, {std::nullopt}), InvalidInput);
  EXPECT_THROW((void)accounts.read(*connection_, {"42", "43"}), InvalidInput);
  EXPECT_THROW((void)accounts.read(*connection_, {"x"}), InvalidInput);
  const auto change = [&](const VersionedTable::Changes& changes) {
    return accounts.update(*connection_, claim(34), seen, changes);
  };
  EXPECT_THROW((void)change({{"gone", "1"}}), InvalidInput);
  EXPECT_THROW((void)change({{"version", "9"}}), InvalidInput);
  EXPECT_THROW((void)change({{"token", "9"}}), InvalidInput);
  EXPECT_THROW((void)change({{"holder", "9"}}), InvalidInput);
  EXPECT_THROW((void)change({{"id", "9"}}), InvalidInput);
  EXPECT_THROW((void)change({{"note", "9"}, {"note", "8"}}), InvalidInput);
  EXPECT_THROW((void)change({{"balance", "many"}}), InvalidInput);
  EXPECT_THROW((void)change({{"note", std::string("a\0b", 3)}}), InvalidInput);
  EXPECT_THROW((void)change({{"balance", "-1"}}), pqxx::check_violation);
  EXPECT_EQ(row(), "100 0  ");
}

TEST_F(Versioned, InATransactionARefusalDoomsIt) {
  const auto accounts = table();
  const auto seen = *accounts.read(*connection_, {"42"});
  ASSERT_EQ(accounts.fenced_read(*connection_, claim(35), {"42"}).verdict, RowVerdict::admitted);
  pqxx::work tx{*connection_};
  EXPECT_EQ(accounts.update(tx, claim(34), seen, {{"balance", "1"}}).verdict, RowVerdict::stale);
  EXPECT_ANY_THROW(postgres::exec_params(tx, "UPDATE account SET balance = $1", 1));
  EXPECT_ANY_THROW(tx.commit());
  EXPECT_EQ(row(), "100 0 35 h");
}

TEST_F(Versioned, AnAdvanceCommitsDurablyUnderEverySessionSetting) {
  database_.run("CREATE TABLE level (name text)");
  database_.run(
      "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
      "INSERT INTO level VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
      "CREATE CONSTRAINT TRIGGER look AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED "
      "FOR EACH ROW EXECUTE FUNCTION look()");
  const auto accounts = table();
  int token = 33;
  for (const char* level : {"off", "local", "remote_write", "on", "remote_apply"}) {
    pqxx::nontransaction{*connection_}.exec(fmt::format("SET synchronous_commit = {}", level));
    const auto given = claim(++token);
    const auto seen = accounts.fenced_read(*connection_, given, {"42"});
    ASSERT_EQ(accounts.update(*connection_, given, *seen.row, {}).verdict, RowVerdict::admitted);
    const auto next = *accounts.read(*connection_, {"42"});
    ASSERT_EQ(accounts.update(*connection_, claim(++token), next, {}).verdict, RowVerdict::admitted);
    EXPECT_EQ(pqxx::nontransaction{*connection_}.exec("SHOW synchronous_commit")[0][0].c_str(),
              std::string{level});
  }
  // An advance by reading, a write under the same token, an advance by writing.
  EXPECT_EQ(database_.ask("SELECT string_agg(name, ' ') FROM level"),
            "on off on on local on on remote_write on on on on remote_apply remote_apply remote_apply");
}

// The update waits for another transaction, and then judges and reports the row as that one left it, not as
// its own snapshot shows it.
TEST_F(Versioned, TheRowIsJudgedAsItIsWhenItsLockIsHad) {
  const auto accounts = table();
  struct Case {
    const char* meanwhile;
    bool is_committed;
    RowVerdict expected;
  };
  const Case cases[]{
      {"UPDATE account SET token = 35, holder = 'b', version = version + 1", true, RowVerdict::stale},
      {"UPDATE account SET token = 34, holder = 'b'", true, RowVerdict::conflict},
      {"UPDATE account SET version = version + 1", true, RowVerdict::version_conflict},
      {"DELETE FROM account", true, RowVerdict::not_found},
      {"UPDATE account SET token = 35, version = version + 1", false, RowVerdict::admitted},
      {"UPDATE account SET note = 'x'", true, RowVerdict::admitted},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.meanwhile);
    database_.run(
        "DELETE FROM account; INSERT INTO account (id, balance, version, token, holder) "
        "VALUES (42, 100, 0, 33, 'a')");
    const auto seen = *accounts.read(*connection_, {"42"});
    const auto other = database_.connect();
    pqxx::work blocker{*other};
    blocker.exec(one.meanwhile);
    auto waiting = std::async(std::launch::async, [&] {
      return accounts.update(*connection_, claim(34), seen, {{"balance", "70"}}).verdict;
    });
    ASSERT_TRUE(eventually([&] {
      return database_.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "1";
    }));
    if (one.is_committed) {
      blocker.commit();
    } else {
      blocker.abort();
    }
    EXPECT_EQ(waiting.get(), one.expected);
  }
}

// The fenced read began before the newer write, and comes to the row after it.
TEST_F(Versioned, AFencedReadNeverHoldsWhatANewerTokenWrote) {
  const auto accounts = table();
  const auto other = database_.connect();
  pqxx::work newer{*other};
  newer.exec("UPDATE account SET token = 35, holder = 'b', balance = 35, version = version + 1");
  auto waiting =
      std::async(std::launch::async, [&] { return accounts.fenced_read(*connection_, claim(34), {"42"}); });
  ASSERT_TRUE(eventually([&] {
    return database_.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "1";
  }));
  newer.commit();
  const auto seen = waiting.get();
  EXPECT_EQ(seen.verdict, RowVerdict::stale);
  EXPECT_EQ(seen.highest, 35);
  EXPECT_FALSE(seen.row);
}

TEST_F(Versioned, AnOldSnapshotWritesNothing) {
  const auto accounts = table();
  const auto seen = *accounts.read(*connection_, {"42"});
  pqxx::transaction<pqxx::repeatable_read> tx{*connection_};
  tx.exec("SELECT count(*) FROM account");
  const auto other = database_.connect();
  ASSERT_EQ(accounts.fenced_read(*other, claim(35), {"42"}).verdict, RowVerdict::admitted);
  EXPECT_THROW((void)accounts.update(tx, claim(34), seen, {{"balance", "70"}}), Unavailable);
  EXPECT_EQ(row(), "100 0 35 h");
}

// G1 and G3 for one row: everybody takes over from everybody, reads fenced and raises the balance by one.
TEST_F(Versioned, NoUpdateIsLostAndNoTokenFallsUnderConcurrency) {
  database_.run(
      "CREATE FUNCTION refuse_fall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
      "IF new.token < old.token OR new.version < old.version THEN RAISE 'it fell'; END IF; RETURN new; END "
      "$$;"
      "CREATE TRIGGER refuse_fall BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION refuse_fall()");
  const auto accounts = table();
  std::atomic<std::int64_t> next{1};
  std::atomic<int> admitted{0};
  std::atomic<int> refused{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const auto connection = database_.connect();
      std::mt19937 random{static_cast<unsigned>(i)};
      for (int turn = 0; turn < scaled(100); ++turn) {
        const auto given = claim(next++, "h" + std::to_string(i));
        const auto seen = accounts.fenced_read(*connection, given, {"42"});
        if (seen.verdict != RowVerdict::admitted) continue;
        if (random() % 3 == 0) std::this_thread::yield();
        const auto balance = std::stoi(*seen.row->values.at("balance")) + 1;
        const auto done =
            accounts.update(*connection, given, *seen.row, {{"balance", std::to_string(balance)}});
        (done.verdict == RowVerdict::admitted ? admitted : refused) += 1;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(accounts.read(*connection_, {"42"})->values.at("balance"), std::to_string(100 + admitted));
  EXPECT_GT(admitted, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace fenceguard::test
