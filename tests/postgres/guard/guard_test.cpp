// Guard: advance, write with the caller's function, and the form of one round trip.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/error.hpp"
#include "tests/postgres/guard/accounts.hpp"

namespace fenceguard::test {
namespace {

constexpr const char* update = "UPDATE account SET balance = $1 WHERE id = $2";

class GuardTest : public Accounts {
 protected:
  postgres::Guard guard_{*connection_};
};

TEST_F(GuardTest, AnAdvanceIsReadCommittedAndDurableUnderEverySessionSetting) {
  pqxx::nontransaction{*connection_}.exec(
      "SET default_transaction_isolation = 'serializable'; SET synchronous_commit = off");
  database_.run("CREATE TABLE seen (synchronous_commit text)");
  database_.run(
      "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
      "INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
      "CREATE CONSTRAINT TRIGGER zz_look AFTER INSERT ON fenceguard.fences DEFERRABLE INITIALLY DEFERRED "
      "FOR EACH ROW EXECUTE FUNCTION look()");
  EXPECT_EQ(guard_.advance(claim(34).with(Sequence{7})).verdict, Verdict::admitted);
  EXPECT_EQ(fence(), "34 h ");
  EXPECT_EQ(database_.ask("SELECT synchronous_commit FROM seen"), "on");
}

TEST_F(GuardTest, WriteIsReadCommittedUnderEverySessionSetting) {
  pqxx::nontransaction{*connection_}.exec("SET default_transaction_isolation = 'serializable'");
  std::string level;
  const auto ruling = guard_.write(claim(34), [&](pqxx::work& tx) {
    level = tx.exec("SHOW transaction_isolation")[0][0].c_str();
    set_balance(tx, 70);
  });
  EXPECT_EQ(ruling.verdict, Verdict::admitted);
  EXPECT_EQ(level, "read committed");
  EXPECT_EQ(balance(), 70);
}

TEST_F(GuardTest, ARefusedWriteNeverCallsTheFunction) {
  advance(35);
  const auto ruling = guard_.write(claim(34), [](pqxx::work&) { FAIL() << "called"; });
  EXPECT_EQ(ruling.verdict, Verdict::stale);
  EXPECT_EQ(ruling.highest, 35);
  EXPECT_EQ(guard_.advance(claim(36)).verdict, Verdict::admitted);
}

TEST_F(GuardTest, WhatTheFunctionThrowsPassesThroughAfterARollback) {
  EXPECT_THROW((void)guard_.write(claim(34),
                                  [](pqxx::work& tx) {
                                    set_balance(tx, 70);
                                    throw std::domain_error{"enough"};
                                  }),
               std::domain_error);
  EXPECT_THROW((void)guard_.write(claim(34), [](pqxx::work& tx) { set_balance(tx, -1); }),
               pqxx::check_violation);
  EXPECT_EQ(balance(), 100);
  EXPECT_EQ(fence(), "");
}

// PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, which libpqxx takes for success.
TEST_F(GuardTest, AFailureThatTheFunctionSwallowsIsNotReportedAsCommitted) {
  const auto swallowing = [&](const std::function<void(pqxx::work&)>& failing) {
    return [&, failing](pqxx::work& tx) {
      set_balance(tx, 70);
      EXPECT_ANY_THROW(failing(tx));
    };
  };
  const std::function<void(pqxx::work&)> failures[]{
      [](pqxx::work& tx) { postgres::exec_params(tx, "SELECT 1 / ($1)::int", 0); },
      [](pqxx::work& tx) { tx.exec("SELECT 1 / 0"); }};
  for (const auto& failing : failures) {
    EXPECT_THROW((void)guard_.write(claim(34), swallowing(failing)), Unavailable);
    EXPECT_EQ(balance(), 100);
    EXPECT_EQ(fence(), "");
  }
  EXPECT_EQ(guard_.write(claim(34), [](pqxx::work& tx) { set_balance(tx, 70); }).verdict, Verdict::admitted);
  EXPECT_EQ(balance(), 70);
}

// libpqxx 6.4 answers a failed exec() with a rollback, and would run what comes by exec_params() after it
// alone: behind the back of a holder that has advanced meanwhile.
TEST_F(GuardTest, NothingLandsThatIsSentAfterASwallowedFailure) {
  pqxx::connection other{database_.conninfo()};
  postgres::Guard next{other};
  EXPECT_THROW(
      (void)guard_.write(claim(34),
                         [&](pqxx::work& tx) {
                           EXPECT_ANY_THROW(tx.exec("SELECT 1 / 0"));
                           EXPECT_EQ(next.advance(claim(35)).verdict, Verdict::admitted);
                           EXPECT_ANY_THROW(postgres::exec_params(tx, "UPDATE account SET balance = $1", 70));
                         }),
      Unavailable);
  EXPECT_EQ(balance(), 100);
}

TEST_F(GuardTest, TransactionEndedByTheFunctionIsNotReportedAsCommitted) {
  EXPECT_THROW((void)guard_.write(claim(34), [](pqxx::work& tx) { tx.abort(); }), OutcomeUnknown);
  EXPECT_THROW((void)guard_.write(claim(34),
                                  [](pqxx::work& tx) {
                                    tx.exec("COMMIT");
                                    set_balance(tx, 70);
                                  }),
               OutcomeUnknown);
  EXPECT_EQ(guard_.advance(claim(35)).verdict, Verdict::admitted);
}

TEST_F(GuardTest, ADeferredConstraintPassesThroughAndNothingWasCommitted) {
  database_.run(
      "CREATE TABLE owner (id bigint PRIMARY KEY);"
      "ALTER TABLE account ADD owner bigint REFERENCES owner DEFERRABLE INITIALLY DEFERRED");
  const auto set_owner = [](pqxx::work& tx) { tx.exec("UPDATE account SET owner = 9, balance = 70"); };
  EXPECT_THROW((void)guard_.write(claim(34).with(Sequence{1}), set_owner), pqxx::foreign_key_violation);
  EXPECT_THROW(
      (void)guard_.execute(claim(34).with(Sequence{1}), "UPDATE account SET owner = 9, balance = 70"),
      pqxx::foreign_key_violation);
  EXPECT_EQ(balance(), 100);
  EXPECT_EQ(fence(), "");
  EXPECT_EQ(guard_.write(claim(34).with(Sequence{1}), [](pqxx::work& tx) { set_balance(tx, 70); }).verdict,
            Verdict::admitted);
}

TEST_F(GuardTest, TimeLimitsAndDeadlocksAreUnavailable) {
  const auto limited = database_.connect();
  pqxx::nontransaction{*limited}.exec("SET statement_timeout = '50ms'");
  postgres::Guard hurried{*limited};
  EXPECT_THROW((void)hurried.execute(claim(34), "UPDATE account SET balance = 1 FROM pg_sleep(9)"),
               Unavailable);
  const auto other = database_.connect();
  pqxx::work holder{*other};
  ASSERT_EQ(postgres::admit_in(holder, claim(33)).verdict, Verdict::admitted);
  EXPECT_THROW((void)hurried.advance(claim(34)), Unavailable);
  pqxx::nontransaction{*connection_}.exec("SET lock_timeout = '50ms'");
  EXPECT_THROW((void)guard_.advance(claim(34)), Unavailable);
  EXPECT_THROW((void)guard_.write(claim(34), [](pqxx::work&) {}), Unavailable);
  EXPECT_THROW((void)guard_.execute(claim(34), update, {"1", "42"}), Unavailable);
  set_balance(holder, 70);
  holder.commit();
  EXPECT_EQ(balance(), 70);
  EXPECT_EQ(guard_.execute(claim(34), update, {"1", "42"}).ruling.verdict, Verdict::admitted);
}

TEST_F(GuardTest, OneStatementTellsTheRowsThatItWrote) {
  EXPECT_EQ(guard_.execute(claim(34), "INSERT INTO account VALUES ($1, $2), (8, 8)", {"7", "70"})
                .result.affected_rows(),
            2u);
  const auto done =
      guard_.execute(claim(34), "UPDATE account SET balance = $1 WHERE id >= $2 RETURNING id", {"1", "8"});
  EXPECT_EQ(done.ruling.verdict, Verdict::admitted);
  EXPECT_EQ(done.ruling.highest, 34);
  EXPECT_EQ(done.result.affected_rows(), 2u);
  EXPECT_EQ(done.result.size(), 2u);
  EXPECT_EQ(guard_.execute(claim(34), "DELETE FROM account WHERE id = $1", {"9"}).result.affected_rows(), 0u);
  EXPECT_EQ(guard_.execute(claim(34), "DELETE FROM account").result.affected_rows(), 3u);
  EXPECT_EQ(
      guard_
          .execute(claim(34), "WITH n AS (SELECT $1::bigint AS i) INSERT INTO account SELECT i, $2 FROM n",
                   {"3", "5"})
          .result.affected_rows(),
      1u);
}

TEST_F(GuardTest, OneStatementIsRefusedWithTheHighestToken) {
  advance(35, "b");
  const auto stale = guard_.execute(claim(34), update, {"1", "42"});
  EXPECT_EQ(stale.ruling.verdict, Verdict::stale);
  EXPECT_EQ(stale.ruling.highest, 35);
  EXPECT_EQ(guard_.execute(claim(35), update, {"1", "42"}).ruling.verdict, Verdict::conflict);
  const auto numbered = claim(35, "b").with(Sequence{1});
  EXPECT_EQ(guard_.execute(numbered, update, {"70", "42"}).ruling.verdict, Verdict::admitted);
  EXPECT_EQ(guard_.execute(numbered, update, {"60", "42"}).ruling.verdict, Verdict::duplicate);
  EXPECT_EQ(balance(), 70);
}

TEST_F(GuardTest, OneStatementTakesAnyTextAndNullAsAParameter) {
  database_.run(R"(CREATE TABLE odd ("a b" text))");
  const std::string text = R"(it's "$1" \ ; -- )";
  ASSERT_EQ(guard_.execute(claim(34), R"(INSERT INTO odd VALUES ($1), ($2))", {text, std::nullopt})
                .result.affected_rows(),
            2u);
  EXPECT_EQ(database_.ask("SELECT \"a b\" FROM odd WHERE \"a b\" IS NOT NULL"), text);
}

TEST_F(GuardTest, AWrongStatementIsTheCallersAndTheGuardGoesOn) {
  EXPECT_THROW((void)guard_.execute(claim(34), "UPDATE nothing SET x = $1", {"1"}), pqxx::sql_error);
  EXPECT_THROW((void)guard_.execute(claim(34), update, {"x", "42"}), pqxx::data_exception);
  EXPECT_THROW((void)guard_.execute(claim(34), update, {"-1", "42"}), pqxx::check_violation);
  EXPECT_EQ(fence(), "");
  EXPECT_EQ(guard_.execute(claim(34), update, {"70", "42"}).ruling.verdict, Verdict::admitted);
}

// As behind a pooler, or after libpqxx has connected again.
TEST_F(GuardTest, AStatementThatIsPreparedNoMoreIsPreparedAgain) {
  ASSERT_EQ(guard_.execute(claim(34), update, {"70", "42"}).ruling.verdict, Verdict::admitted);
  pqxx::nontransaction{*connection_}.exec("DEALLOCATE ALL");
  ASSERT_EQ(guard_.execute(claim(34), update, {"60", "42"}).ruling.verdict, Verdict::admitted);
  EXPECT_EQ(balance(), 60);
}

TEST_F(GuardTest, AskingProvesOnlyWhatIsOnRecord) {
  const auto numbered = claim(34).with(Sequence{7});
  EXPECT_FALSE(guard_.ask(numbered));
  EXPECT_EQ(fence(), "");
  ASSERT_EQ(guard_.execute(numbered, update, {"70", "42"}).ruling.verdict, Verdict::admitted);
  EXPECT_TRUE(guard_.ask(numbered));
  EXPECT_FALSE(guard_.ask(claim(34).with(Sequence{6})));
  EXPECT_FALSE(guard_.ask(claim(34).with(Sequence{8})));
  EXPECT_FALSE(guard_.ask(claim(34, "other").with(Sequence{7})));
  EXPECT_THROW((void)guard_.ask(claim(34)), InvalidInput);
  advance(35);
  EXPECT_FALSE(guard_.ask(numbered));
}

}  // namespace
}  // namespace fenceguard::test
