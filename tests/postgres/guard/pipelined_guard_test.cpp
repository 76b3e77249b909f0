// Guarded statements in a pipeline, on real connections: what they write, how they are refused, and that
// nothing of a statement that failed stays.

#include "adapters/postgres/pipelined_guard.hpp"

#include <gmock/gmock.h>

#include "guard/error.hpp"
#include "tests/postgres/guard/accounts.hpp"

namespace fenceguard::test {
namespace {

constexpr const char* set_to = "UPDATE account SET balance = $1 WHERE id = $2";

class PipelinedGuardTest : public Accounts {
 protected:
  Verdict write(const Claim& claim, const std::string& balance) {
    return guard_.execute(claim, set_to, {balance, "42"}).ruling.verdict;
  }

  [[nodiscard]] std::string state_of(const Claim& claim, const std::string& statement,
                                     const postgres::PipelinedGuard::Values& values = {}) {
    try {
      (void)guard_.execute(claim, statement, values);
    } catch (const pqxx::sql_error& error) {
      return error.sqlstate();
    }
    return "none";
  }

  // Of the guard's own session.
  [[nodiscard]] std::string ask(const std::string& expression) {
    return *guard_.execute(claim(34), fmt::format("WITH x AS (SELECT {}) SELECT * FROM x", expression))
                .rows.at(0)
                .at(0);
  }

  postgres::PipelinedGuard guard_{database_.conninfo()};
};

TEST_F(PipelinedGuardTest, AStatementTellsWhatItWroteAndAdvancesWhereItMust) {
  const auto done = guard_.execute(claim(34), "INSERT INTO account VALUES ($1, $2), (8, 8)", {"7", "70"});
  EXPECT_EQ(done.ruling.verdict, Verdict::admitted);
  EXPECT_EQ(done.ruling.highest, 34);
  EXPECT_EQ(done.affected_rows, 2);
  EXPECT_EQ(fence(), "34 h ");
  const auto returned = guard_.execute(
      claim(34), "UPDATE account SET balance = $1 WHERE id < $2 RETURNING id, nullif(id, 7)", {"1", "9"});
  EXPECT_EQ(returned.affected_rows, 2);
  EXPECT_THAT(returned.rows,
              testing::UnorderedElementsAre(postgres::PipelinedGuard::Values{"7", std::nullopt},
                                            postgres::PipelinedGuard::Values{"8", "8"}));
  EXPECT_EQ(write(claim(35, "b"), "5"), Verdict::admitted);
  EXPECT_EQ(fence(), "35 b ");
  EXPECT_EQ(balance(), 5);
}

TEST_F(PipelinedGuardTest, AClaimIsRefusedWithTheHighestTokenAndNothingIsWritten) {
  ASSERT_EQ(write(claim(34), "70"), Verdict::admitted);
  advance(35, "b");
  const auto stale = guard_.execute(claim(34), set_to, {"1", "42"});
  EXPECT_EQ(stale.ruling.verdict, Verdict::stale);
  EXPECT_EQ(stale.ruling.highest, 35);
  EXPECT_EQ(write(claim(35), "1"), Verdict::conflict);
  const auto numbered = claim(35, "b").with(Sequence{1});
  EXPECT_EQ(write(numbered, "60"), Verdict::admitted);
  EXPECT_EQ(write(numbered, "50"), Verdict::duplicate);
  EXPECT_TRUE(guard_.ask(numbered));
  EXPECT_FALSE(guard_.ask(claim(35, "b").with(Sequence{2})));
  EXPECT_THROW((void)guard_.ask(claim(35, "b")), InvalidInput);
  EXPECT_EQ(balance(), 60);
}

TEST_F(PipelinedGuardTest, AnAdvanceIsJudgedAsByTheOtherGuard) {
  EXPECT_EQ(guard_.advance(claim(35).with(Sequence{9})).verdict, Verdict::admitted);
  EXPECT_EQ(fence(), "35 h ");
  const auto stale = guard_.advance(claim(34));
  EXPECT_EQ(stale.verdict, Verdict::stale);
  EXPECT_EQ(stale.highest, 35);
  EXPECT_EQ(guard_.advance(claim(35, "b")).verdict, Verdict::conflict);
  postgres::PipelinedGuard bounded{database_.conninfo(), {.jump_max = 100}};
  EXPECT_THROW((void)bounded.advance(claim(1'000)), Implausible);
  EXPECT_THROW((void)bounded.execute(claim(1'000), set_to, {"1", "42"}), Implausible);
}

// The judgement locks, so whatever the statement then reads is newer than the write that it waited for.
TEST_F(PipelinedGuardTest, StatementAfterAnAdvanceSeesTheWriteItWaitedFor) {
  for (const auto* const level : {"read committed", "repeatable read", "serializable"}) {
    SCOPED_TRACE(level);
    database_.run("DELETE FROM fenceguard.fences; UPDATE account SET balance = 100");
    postgres::PipelinedGuard guard{fmt::format("{} options='-c default_transaction_isolation={}'",
                                               database_.conninfo(),
                                               level == std::string{"repeatable read"} ? "repeatable\\\\ read"
                                               : level == std::string{"read committed"} ? "read\\\\ committed"
                                                                                        : level)};
    advance(34);
    ASSERT_EQ(guard.execute(claim(34), "UPDATE account SET balance = balance").ruling.verdict,
              Verdict::admitted);
    const auto other = database_.connect();
    pqxx::work older{*other};
    ASSERT_EQ(postgres::admit_in(older, claim(34)).verdict, Verdict::admitted);
    set_balance(older, 70);
    std::jthread writer{[&] {
      EXPECT_EQ(guard.execute(claim(35), "UPDATE account SET balance = balance - 5").ruling.verdict,
                Verdict::admitted);
    }};
    ASSERT_TRUE(eventually([&] {
      return database_.ask(
                 "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                 "AND wait_event_type = 'Lock'") == "1";
    }));
    older.commit();
    writer.join();
    EXPECT_EQ(balance(), 65);
    EXPECT_EQ(guard.execute(claim(34), "UPDATE account SET balance = 0").ruling.verdict, Verdict::stale);
    const auto numbered = claim(35).with(Sequence{1});
    EXPECT_EQ(guard.execute(numbered, "UPDATE account SET balance = 1").ruling.verdict, Verdict::admitted);
  }
}

TEST_F(PipelinedGuardTest, WhatTheStatementRaisesIsTheCallersAndTheGuardGoesOn) {
  ASSERT_EQ(write(claim(34), "70"), Verdict::admitted);
  EXPECT_EQ(state_of(claim(34), "UPDATE nothing SET x = $1", {"1"}), "42P01");
  EXPECT_EQ(state_of(claim(34), set_to, {"x", "42"}), "22P02");
  EXPECT_EQ(state_of(claim(34), set_to, {"-1", "42"}), "23514");
  EXPECT_THROW((void)guard_.execute(claim(34), set_to, {"1"}), Unavailable);
  EXPECT_EQ(state_of(claim(35), set_to, {"-1", "42"}), "23514");
  EXPECT_EQ(fence(), "34 h ");
  EXPECT_EQ(write(claim(34), "60"), Verdict::admitted);
  EXPECT_EQ(balance(), 60);
}

TEST_F(PipelinedGuardTest, ADeferredConstraintPassesThroughAndNothingWasCommitted) {
  database_.run(
      "CREATE TABLE owner (id bigint PRIMARY KEY);"
      "ALTER TABLE account ADD owner bigint REFERENCES owner DEFERRABLE INITIALLY DEFERRED");
  for (const auto& one : {claim(34), claim(34).with(Sequence{1}), claim(34)})
    EXPECT_EQ(state_of(one, "UPDATE account SET owner = 9, balance = 70"), "23503");
  EXPECT_EQ(balance(), 100);
  EXPECT_EQ(fence(), "");
  EXPECT_EQ(write(claim(34), "70"), Verdict::admitted);
}

TEST_F(PipelinedGuardTest, WhatEndsOrBeginsATransactionOrIsNoWriteIsNotSent) {
  for (const auto* const statement :
       {"COMMIT", "BEGIN", "ROLLBACK", "COPY account FROM STDIN", "", " ;",
        "/* x */ UPDATE account SET balance = 1", "SET x.y = 1", "VACUUM", "PREPARE TRANSACTION 'x'"})
    EXPECT_THROW((void)guard_.execute(claim(34), statement), InvalidInput) << statement;
  EXPECT_EQ(state_of(claim(34), "UPDATE account SET balance = 1; COMMIT"), "42601");
  EXPECT_EQ(balance(), 100);
  EXPECT_EQ(fence(), "");
  EXPECT_EQ(guard_.execute(claim(34), "\n\tupdate account SET balance = 1").affected_rows, 1);
}

TEST_F(PipelinedGuardTest, AProtectedTableTakesItsRows) {
  ASSERT_EQ(write(claim(34), "70"), Verdict::admitted);
  database_.run("SELECT fenceguard.protect('account', $$ 'accounts/' || id $$)");
  EXPECT_EQ(write(claim(34), "60"), Verdict::admitted);
  EXPECT_EQ(write(claim(35), "50"), Verdict::admitted);
  EXPECT_EQ(state_of(claim(35), "INSERT INTO account VALUES (7, 7)"), "ZF003");
  EXPECT_EQ(balance(), 50);
}

TEST_F(PipelinedGuardTest, TimeLimitsAreUnavailable) {
  postgres::PipelinedGuard hurried{database_.conninfo() +
                                   " options='-c statement_timeout=50ms -c lock_timeout=50ms'"};
  advance(34);
  EXPECT_THROW((void)hurried.execute(claim(34), "UPDATE account SET balance = 1 FROM pg_sleep(9)"),
               Unavailable);
  const auto other = database_.connect();
  pqxx::work holder{*other};
  ASSERT_EQ(postgres::admit_in(holder, claim(34)).verdict, Verdict::admitted);
  EXPECT_THROW((void)hurried.execute(claim(35), set_to, {"1", "42"}), Unavailable);
  EXPECT_THROW((void)hurried.advance(claim(35)), Unavailable);
  holder.commit();
  EXPECT_EQ(balance(), 100);
}

// As behind a pooler: the session that has it is another one.
TEST_F(PipelinedGuardTest, WhatIsPreparedNoMoreIsPreparedAgain) {
  ASSERT_EQ(write(claim(34), "70"), Verdict::admitted);
  database_.run(
      "CREATE FUNCTION forget() RETURNS text LANGUAGE plpgsql AS $$ DECLARE s record; BEGIN "
      "FOR s IN SELECT name FROM pg_prepared_statements WHERE statement NOT LIKE '%forget%' LOOP "
      "EXECUTE format('DEALLOCATE %I', s.name); END LOOP; RETURN ''; END $$");
  (void)ask("forget()");
  ASSERT_EQ(write(claim(34), "60"), Verdict::admitted);
  EXPECT_EQ(balance(), 60);
}

TEST_F(PipelinedGuardTest, WhatAStatementReturnsMayChange) {
  const auto write = [&] {
    return guard_.execute(claim(34), "UPDATE account SET balance = 1 RETURNING *").rows.at(0).size();
  };
  EXPECT_EQ(write(), 2u);
  EXPECT_EQ(write(), 2u);
  database_.run("ALTER TABLE account ADD extra text");
  EXPECT_EQ(write(), 3u);
}

TEST_F(PipelinedGuardTest, AResourceHasOneNameWhateverTheSessionsEncodingIs) {
  advance(35, "new", "konto/ä");
  database_.run(fmt::format("ALTER DATABASE {} SET client_encoding = 'LATIN1'", database_.name()));
  postgres::PipelinedGuard other{database_.conninfo() + " client_encoding=LATIN1"};
  EXPECT_EQ(other.execute(claim(34, "h", "konto/ä"), set_to, {"1", "42"}).ruling.verdict, Verdict::stale);
  EXPECT_EQ(other.advance(claim(34, "h", "konto/ä")).verdict, Verdict::stale);
}

TEST_F(PipelinedGuardTest, ANullByteIsNotCutOff) {
  using namespace std::string_literals;
  EXPECT_THROW((void)guard_.execute(claim(34), "UPDATE account SET balance = 1\0 WHERE id = 7"s),
               InvalidInput);
  EXPECT_THROW((void)guard_.execute(claim(34), set_to, {"1\0"s, "42"}), InvalidInput);
}

TEST_F(PipelinedGuardTest, NothingIsPreparedTwiceHoweverOftenItIsRefused) {
  ASSERT_EQ(write(claim(34), "70"), Verdict::admitted);
  const auto before = ask("(SELECT count(*) FROM pg_prepared_statements)");
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(write(claim(33), "1"), Verdict::stale);
    EXPECT_EQ(state_of(claim(34), set_to, {"-1", "42"}), "23514");
  }
  const auto after = ask("(SELECT count(*) FROM pg_prepared_statements)");
  EXPECT_LE(std::stoi(after), std::stoi(before) + 1);  // the rule itself
}

TEST_F(PipelinedGuardTest, ALostConnectionIsReplacedAtTheNextCallAndItsWriteIsUnknown) {
  ASSERT_EQ(write(claim(34), "70"), Verdict::admitted);
  EXPECT_THROW((void)guard_.execute(
                   claim(34), "UPDATE account SET balance = 1 FROM pg_terminate_backend(pg_backend_pid())"),
               OutcomeUnknown);
  EXPECT_EQ(balance(), 70);
  EXPECT_EQ(write(claim(34), "60"), Verdict::admitted);
  postgres::PipelinedGuard nowhere{"host=127.0.0.1 port=1 connect_timeout=2"};
  EXPECT_THROW((void)nowhere.execute(claim(34), set_to, {"1", "42"}), Unavailable);
  EXPECT_THROW((void)nowhere.advance(claim(34)), Unavailable);
}

TEST_F(PipelinedGuardTest, WithoutTheFencesTheGuardTellsWhatToInstall) {
  database_.run("SELECT fenceguard.uninstall()");
  try {
    (void)guard_.execute(claim(34), set_to, {"1", "42"});
    FAIL() << "it was written";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("fenceguard sql postgres"));
  }
}

}  // namespace
}  // namespace fenceguard::test
