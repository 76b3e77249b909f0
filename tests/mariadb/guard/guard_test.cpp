// A service's own writes under a claim: what a refusal leaves, and what a function that ends the transaction
// is told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mysql.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "adapters/mariadb/errors.hpp"
#include "tests/mariadb/guard/accounts.hpp"

namespace fenceguard::mariadb::test {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;
using testing::ThrowsMessage;

class GuardTest : public Accounts {
 protected:
  Guard guard_{connection_};
};

TEST_F(GuardTest, AWriteAdvancesAndARefusedOneCallsNothing) {
  const auto set = [](int value) { return [value](Connection& tx) { set_balance(tx, value); }; };
  EXPECT_EQ(guard_.write(claim(34), set(70)).verdict, Verdict::admitted);
  EXPECT_EQ(balance(), 70);
  EXPECT_EQ(guard_.write(claim(35, "b"), set(80)).verdict, Verdict::admitted);
  const auto stale = guard_.write(claim(34), [](Connection&) { FAIL(); });
  EXPECT_EQ(stale.verdict, Verdict::stale);
  EXPECT_EQ(stale.highest, 35);
  EXPECT_EQ(guard_.write(claim(35), [](Connection&) { FAIL(); }).verdict, Verdict::conflict);
  EXPECT_EQ(balance(), 80);
  EXPECT_FALSE(connection_.is_in_transaction());
}

TEST_F(GuardTest, ASequenceTakesEffectOnce) {
  int calls = 0;
  const auto count = [&](Connection& tx) { set_balance(tx, ++calls); };
  EXPECT_EQ(guard_.write(claim(34).with(Sequence{7}), count).verdict, Verdict::admitted);
  const auto again = guard_.write(claim(34).with(Sequence{7}), count);
  EXPECT_EQ(again.verdict, Verdict::duplicate);
  EXPECT_EQ(again.fence, (Fence{Token{34}, Holder{"h"}, Sequence{7}, false}));
  EXPECT_EQ(guard_.write(claim(34).with(Sequence{6}), count).verdict, Verdict::stale);
  EXPECT_EQ(calls, 1);
}

TEST_F(GuardTest, WhatTheFunctionThrowsRollsBackAndLeavesTheToken) {
  EXPECT_THROW((void)guard_.write(claim(34).with(Sequence{7}),
                                  [](Connection& tx) {
                                    set_balance(tx, 1);
                                    throw std::runtime_error{"no"};
                                  }),
               std::runtime_error);
  EXPECT_EQ(balance(), 100);
  EXPECT_EQ(highest(), "34");
  EXPECT_EQ(guard_.write(claim(34).with(Sequence{7}), [](Connection& tx) { set_balance(tx, 2); }).verdict,
            Verdict::admitted);
}

// What follows would be in a transaction that nobody commits.
TEST_F(GuardTest, ASessionThatChainsTransactionsIsLeftOutsideOfOne) {
  connection_.run("SET completion_type = 'CHAIN'");
  for (const auto token : {34, 35}) {
    EXPECT_EQ(guard_.advance(claim(token)).verdict, Verdict::admitted);
    EXPECT_FALSE(connection_.is_in_transaction());
    EXPECT_EQ(guard_.write(claim(token), [](Connection& tx) { set_balance(tx, 2); }).verdict,
              Verdict::admitted);
    EXPECT_FALSE(connection_.is_in_transaction());
    EXPECT_EQ(guard_.write(claim(token - 1), [](Connection& tx) { set_balance(tx, 3); }).verdict,
              Verdict::stale);
    EXPECT_FALSE(connection_.is_in_transaction());
  }
}

TEST_F(GuardTest, AFunctionThatEndsTheTransactionIsToldThatTheOutcomeIsUnknown) {
  for (const auto* end :
       {"COMMIT", "ROLLBACK", "START TRANSACTION", "CREATE TABLE IF NOT EXISTS other (i INT)"}) {
    SCOPED_TRACE(end);
    EXPECT_THAT(
        [&] {
          (void)guard_.write(claim(34), [&](Connection& tx) {
            tx.run(end);
            set_balance(tx, 1);
          });
        },
        ThrowsMessage<OutcomeUnknown>(HasSubstr("ended the transaction")));
    EXPECT_EQ(guard_.write(claim(34), [](Connection&) {}).verdict, Verdict::admitted)
        << "the session is well";
  }
}

TEST_F(GuardTest, ASavepointOfTheFunctionsOwnIsItsOwnAffair) {
  EXPECT_EQ(guard_
                .write(claim(34),
                       [](Connection& tx) {
                         set_balance(tx, 1);
                         tx.run("SAVEPOINT mine");
                         set_balance(tx, 2);
                         tx.run("ROLLBACK TO SAVEPOINT mine");
                       })
                .verdict,
            Verdict::admitted);
  EXPECT_EQ(balance(), 1);
}

// The server ends one of two transactions that wait for each other; what its client does next runs alone.
TEST_F(GuardTest, ADeadlockThatTheFunctionSwallowsIsNotTakenForACommit) {
  database_.run("INSERT INTO account VALUES (1, 0), (2, 0)");
  std::jthread heavy;
  EXPECT_THAT(
      [&] {
        (void)guard_.write(claim(34), [&](Connection& tx) {
          tx.run("UPDATE account SET balance = 6 WHERE id = 1");
          std::atomic<bool> has_locked{false};
          // It has written more, so it is not the one that is ended.
          heavy = std::jthread{[&, connection = std::make_shared<Connection>(database_.connect())] {
            connection->run("START TRANSACTION");
            connection->run("INSERT INTO account SELECT seq, 0 FROM seq_100_to_400");
            connection->run("UPDATE account SET balance = 5 WHERE id = 42");
            has_locked = true;
            connection->run("UPDATE account SET balance = 5 WHERE id = 1");
            connection->run("ROLLBACK");
          }};
          while (!has_locked) std::this_thread::yield();
          EXPECT_THROW(set_balance(tx, 6), ServerError);
          tx.run("UPDATE account SET balance = 6 WHERE id = 2");
        });
      },
      ThrowsMessage<OutcomeUnknown>(HasSubstr("ended the transaction")));
}

TEST_F(GuardTest, AdvanceBehindOlderWritesIsUnavailableAndMovesNothing) {
  ASSERT_EQ(guard_.advance(claim(34)).verdict, Verdict::admitted);
  auto older = database_.connect();
  older.run("START TRANSACTION");
  ASSERT_EQ(admit_in(older, claim(34)).verdict, Verdict::admitted);
  Guard next{connection_, {.drain = std::chrono::seconds{1}, .cut = false}};
  EXPECT_THAT([&] { (void)next.advance(claim(35, "b")); },
              ThrowsMessage<Unavailable>(HasSubstr("older transactions are still open")));
  EXPECT_THROW((void)next.write(claim(35, "b"), [](Connection&) { FAIL(); }), Unavailable);
  EXPECT_EQ(highest(), "34");
  older.run("COMMIT");
  EXPECT_EQ(next.advance(claim(35, "b")).verdict, Verdict::admitted);
}

TEST_F(GuardTest, InATransactionOfTheCallersTheGuardRefusesToBegin) {
  ASSERT_EQ(guard_.advance(claim(34)).verdict, Verdict::admitted);
  connection_.run("START TRANSACTION");
  set_balance(connection_, 5);
  EXPECT_THROW((void)guard_.advance(claim(35)), InvalidInput);
  EXPECT_THROW((void)guard_.write(claim(34), [](Connection&) { FAIL(); }), InvalidInput);
  connection_.run("COMMIT");
  EXPECT_EQ(balance(), 5) << "the caller's own is as it was";
}

TEST_F(GuardTest, AnImplausibleTokenMovesNothing) {
  Guard bounded{connection_, {.jump_max = 100}};
  ASSERT_EQ(bounded.advance(claim(50)).verdict, Verdict::admitted);
  EXPECT_THROW((void)bounded.advance(claim(151)), Implausible);
  EXPECT_THROW((void)bounded.write(claim(151), [](Connection&) { FAIL(); }), Implausible);
  EXPECT_EQ(highest(), "50");
  EXPECT_EQ(bounded.advance(claim(151).as_own_grant()).verdict, Verdict::admitted);
}

TEST_F(GuardTest, AReadIsJudgedAndAdvances) {
  std::string seen;
  const auto look = [&](Connection& tx) { seen = *tx.run("SELECT balance FROM account")[0][0]; };
  EXPECT_EQ(guard_.read(claim(34), look).verdict, Verdict::admitted);
  EXPECT_EQ(seen, "100");
  EXPECT_EQ(highest(), "34");
  EXPECT_EQ(guard_.read(claim(33), [](Connection&) { FAIL(); }).verdict, Verdict::stale);
}

TEST_F(GuardTest, ATransactionOfTheCallersOwn) {
  EXPECT_THROW((void)admit_in(connection_, claim(34)), InvalidInput) << "none is open";
  connection_.run("ROLLBACK");
  connection_.run("START TRANSACTION");
  EXPECT_THAT([&] { (void)admit_in(connection_, claim(34)); },
              ThrowsMessage<Unavailable>(HasSubstr("advance first")));
  EXPECT_THROW(set_balance(connection_, 1), ServerError) << "after a refusal nothing is written";
  connection_.run("ROLLBACK");
  ASSERT_EQ(guard_.advance(claim(34)).verdict, Verdict::admitted);
  connection_.run("START TRANSACTION");
  EXPECT_EQ(admit_in(connection_, claim(34)).verdict, Verdict::admitted);
  set_balance(connection_, 70);
  commit(connection_, claim(34));
  EXPECT_EQ(balance(), 70);
  connection_.run("START TRANSACTION");
  ASSERT_EQ(admit_in(connection_, claim(34)).verdict, Verdict::admitted);
  connection_.run("COMMIT");
  EXPECT_THROW(commit(connection_, claim(34)), OutcomeUnknown) << "it was over before";
}

// Such a statement commits, and so ends the transaction in which the server lets nothing be written.
TEST_F(GuardTest, AfterARefusalNothingIsSentThatCommitsByItself) {
  ASSERT_EQ(guard_.advance(claim(35)).verdict, Verdict::admitted);
  const std::vector<std::function<void()>> refusals{
      [&] { EXPECT_EQ(admit_in(connection_, claim(34)).verdict, Verdict::stale); },
      [&] { EXPECT_THROW((void)admit_in(connection_, claim(36)), Unavailable); },
      [&] { EXPECT_EQ(admit_all_in(connection_, std::vector{claim(34)}).at(0).verdict, Verdict::stale); },
      [&] { EXPECT_THROW(commit(connection_, claim(34)), OutcomeUnknown); }};
  for (const auto& refuse : refusals) {
    connection_.run("START TRANSACTION");
    refuse();
    for (const auto* sql :
         {"LOCK TABLES account WRITE", " truncate account", "ANALYZE TABLE account", "FLUSH TABLES",
          "BEGIN NOT ATOMIC TRUNCATE account; END", "/* */ SELECT 1", "CREATE TABLE other (i INT)"})
      EXPECT_THROW(connection_.run(sql), ServerError) << sql;
    EXPECT_THROW(set_balance(connection_, 1), ServerError);
    EXPECT_EQ(*connection_.run("SELECT balance FROM account")[0][0], "100");
    connection_.run("rollback");
  }
  set_balance(connection_, 1);
  EXPECT_EQ(balance(), 1);
}

TEST_F(GuardTest, OfSeveralClaimsAllOrNoneAreAdmitted) {
  const auto of = [](const char* name, std::int64_t token) {
    return Claim{Resource{name}, Token{token}, Holder{"h"}, std::nullopt};
  };
  const std::vector<Claim> claims{of("accounts/42", 7), of("accounts/1", 5)};
  connection_.run("START TRANSACTION");
  EXPECT_THAT([&] { (void)admit_all_in(connection_, claims); },
              ThrowsMessage<Unavailable>(HasSubstr("advance first")));
  connection_.run("ROLLBACK");
  for (const auto& each : claims) ASSERT_EQ(guard_.advance(each).verdict, Verdict::admitted);
  connection_.run("START TRANSACTION");
  const auto rulings = admit_all_in(connection_, claims);
  EXPECT_EQ(rulings.at(0).highest, 7);
  EXPECT_EQ(rulings.at(1).highest, 5);
  set_balance(connection_, 70);
  commit(connection_, claims);
  EXPECT_EQ(balance(), 70);

  // The first to be locked, the last, and both.
  for (const auto& [first, second] : {std::pair{6, 5}, {7, 4}, {6, 4}}) {
    connection_.run("START TRANSACTION");
    const auto refused =
        admit_all_in(connection_, std::vector{of("accounts/42", first), of("accounts/1", second)});
    EXPECT_EQ(refused.at(0).verdict, first == 7 ? Verdict::admitted : Verdict::stale);
    EXPECT_EQ(refused.at(1).verdict, second == 5 ? Verdict::admitted : Verdict::stale);
    EXPECT_THROW(set_balance(connection_, 1), ServerError);
    connection_.run("ROLLBACK");
  }
  connection_.run("START TRANSACTION");
  EXPECT_THROW((void)admit_all_in(connection_, std::vector{claims[0], claims[0]}), InvalidInput);
  EXPECT_THROW(set_balance(connection_, 1), ServerError);
  EXPECT_THROW((void)admit_all_in(connection_, {}), InvalidInput);
}

// With sequences, each has the fence's row to itself until its commit.
TEST_F(GuardTest, SeveralClaimsInWhateverOrderDoNotDeadlock) {
  const auto of = [](const char* name) { return Claim{Resource{name}, Token{7}, Holder{"h"}, std::nullopt}; };
  for (const auto* name : {"a", "b", "c"}) ASSERT_EQ(guard_.advance(of(name)).verdict, Verdict::admitted);
  constexpr int rounds = 40;
  std::atomic<std::int64_t> sequence{0};
  std::atomic<int> admitted{0};
  const auto write = [&](const std::vector<Claim>& claims) {
    auto connection = database_.connect();
    for (int round = 0; round < rounds; ++round) {
      std::vector<Claim> numbered;
      for (const auto& claim : claims) numbered.push_back(claim.with(Sequence{++sequence}));
      connection.run("START TRANSACTION");
      const auto rulings = admit_all_in(connection, numbered);
      const bool are_all = std::ranges::all_of(
          rulings, [](const auto& ruling) { return ruling.verdict == Verdict::admitted; });
      if (are_all) ++admitted;
      connection.run(are_all ? "COMMIT" : "ROLLBACK");
    }
  };
  {
    const std::jthread forwards{write, std::vector{of("a"), of("b"), of("c")}};
    const std::jthread backwards{write, std::vector{of("c"), of("b"), of("a")}};
  }
  EXPECT_GT(admitted, 0);
}

TEST_F(GuardTest, AConnectionOfTheCallersIsUsedAsItIs) {
  Connection borrowed{connection_.handle(), database_.name()};
  EXPECT_EQ(Guard{borrowed}.write(claim(34), [](Connection& tx) { set_balance(tx, 7); }).verdict,
            Verdict::admitted);
  EXPECT_EQ(balance(), 7);
}

TEST_F(GuardTest, AConnectionOfAnotherCharacterSetIsRefused) {
  ASSERT_EQ(mysql_set_character_set(connection_.handle(), "latin1"), 0);
  EXPECT_THAT([&] { Connection(connection_.handle(), database_.name()); },
              ThrowsMessage<InvalidInput>(HasSubstr("this one's is latin1")));
}

TEST_F(GuardTest, WhatIsNotUtf8IsNotSent) {
  connection_.run("SET sql_mode = ''");
  for (const auto* text : {"a\xff", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82", "\xf5\x80\x80\x80"}) {
    EXPECT_THROW((void)Resource{text}, InvalidInput);
    EXPECT_THROW(connection_.call("try_advance", {text, "1", "h", std::nullopt, std::nullopt}), InvalidInput);
  }
  EXPECT_EQ(highest(), "");
  const std::string name = "caf\xc3\xa9/\xe2\x82\xac/\xf0\x9f\x94\x92";
  EXPECT_EQ(guard_.advance({Resource{name}, Token{1}, Holder{"h"}, std::nullopt}).verdict, Verdict::admitted);
  EXPECT_EQ(database_.run("SELECT resource FROM fences")[0][0], name);
}

TEST_F(GuardTest, ATextIsQuotedWhateverIsInIt) {
  const std::string text = "a'b\\c\"d\n\0?é;-- "s + std::string(1, '\0');
  EXPECT_EQ(connection_.run("SELECT ?", {text})[0][0], text);
  connection_.run("SET sql_mode = 'NO_BACKSLASH_ESCAPES'");
  const std::string plain = "a'b\\' OR 1=1 -- ";
  EXPECT_EQ(connection_.run("SELECT ?", {plain})[0][0], plain);
}

TEST_F(GuardTest, FencesThatAreNotInstalledAreUnavailableAndSaySo) {
  const Database empty{Database::Fences::missing};
  auto connection = empty.connect();
  EXPECT_THAT([&] { (void)Guard{connection}.advance(claim(34)); },
              ThrowsMessage<Unavailable>(HasSubstr("fenceguard sql mariadb")));
}

}  // namespace
}  // namespace fenceguard::mariadb::test
