// Claims in the caller's own transaction.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/error.hpp"
#include "tests/postgres/guard/accounts.hpp"

namespace fenceguard::test {
namespace {

using postgres::admit_all_in;
using postgres::admit_in;

class Admit : public Accounts {};

TEST_F(Admit, AnAdmittedClaimCommitsWithTheData) {
  pqxx::work tx{*connection_};
  const auto ruling = admit_in(tx, claim(34).with(Sequence{7}));
  EXPECT_EQ(ruling.verdict, Verdict::admitted);
  EXPECT_EQ(ruling.highest, 34);
  EXPECT_EQ(ruling.fence, (Fence{Token{34}, Holder{"h"}, Sequence{7}, false}));
  EXPECT_FALSE(ruling.changed);
  set_balance(tx, 70);
  tx.commit();
  EXPECT_EQ(balance(), 70);
  EXPECT_EQ(fence(), "34 h 7");
}

TEST_F(Admit, ARulingNeverNamesAnotherHolder) {
  advance(35, "secret");
  pqxx::work tx{*connection_};
  const auto ruling = admit_in(tx, claim(34));
  EXPECT_EQ(ruling.verdict, Verdict::stale);
  EXPECT_EQ(ruling.highest, 35);
  EXPECT_FALSE(ruling.fence);
}

// Whatever the caller does after a refusal that it did not look at, nothing of it is written, and the commit
// throws. exec_params() is the dangerous one: libpqxx sends it although the transaction was aborted.
TEST_F(Admit, AfterARefusalNothingIsWrittenAndTheCommitThrows) {
  advance(35);
  const auto write_on = [&](const std::function<void(pqxx::work&)>& statement) {
    pqxx::work tx{*connection_};
    tx.exec("INSERT INTO account VALUES (1, 1)");
    ASSERT_EQ(admit_in(tx, claim(34)).verdict, Verdict::stale);
    EXPECT_ANY_THROW(statement(tx));
    EXPECT_ANY_THROW(statement(tx));
    EXPECT_ANY_THROW(tx.commit());
  };
  write_on(
      [](pqxx::work& tx) { postgres::exec_params(tx, "UPDATE account SET balance = $1 WHERE id = 42", 1); });
  write_on([](pqxx::work& tx) { tx.exec("UPDATE account SET balance = 1 WHERE id = 42"); });
  {
    pqxx::work tx{*connection_};
    tx.exec("INSERT INTO account VALUES (1, 1)");
    ASSERT_EQ(admit_in(tx, claim(34)).verdict, Verdict::stale);
    EXPECT_ANY_THROW(tx.commit());
    // libpqxx says it once; ours says it always.
    EXPECT_ANY_THROW(postgres::commit(tx));
    EXPECT_ANY_THROW(postgres::commit(tx));
  }
  EXPECT_EQ(balance(), 100);
  EXPECT_EQ(database_.ask("SELECT count(*) FROM account"), "1");
}

TEST_F(Admit, ARefusedTransactionLetsGoOfItsLocksAndOfTheConnection) {
  advance(35);
  {
    pqxx::work tx{*connection_};
    ASSERT_EQ(admit_in(tx, claim(34)).verdict, Verdict::stale);
    advance(36);
  }
  pqxx::work tx{*connection_};
  EXPECT_EQ(admit_in(tx, claim(36)).verdict, Verdict::admitted);
  tx.commit();
}

TEST_F(Admit, ADuplicateIsNotWrittenEither) {
  {
    pqxx::work tx{*connection_};
    ASSERT_EQ(admit_in(tx, claim(34).with(Sequence{7})).verdict, Verdict::admitted);
    tx.commit();
  }
  pqxx::work tx{*connection_};
  const auto ruling = admit_in(tx, claim(34).with(Sequence{7}));
  EXPECT_EQ(ruling.verdict, Verdict::duplicate);
  EXPECT_EQ(ruling.fence->sequence, Sequence{7});
  EXPECT_ANY_THROW(postgres::exec_params(tx, "UPDATE account SET balance = $1 WHERE id = 42", 1));
  EXPECT_ANY_THROW(tx.commit());
  EXPECT_EQ(balance(), 100);
}

TEST_F(Admit, ASubtransactionIsRefused) {
  pqxx::work tx{*connection_};
  pqxx::subtransaction inner{tx};
  EXPECT_THROW((void)admit_in(inner, claim(34)), InvalidInput);
  EXPECT_ANY_THROW(inner.commit());
  EXPECT_EQ(fence(), "");
}

TEST_F(Admit, AnImplausibleTokenMovesNothing) {
  advance(34);
  pqxx::work tx{*connection_};
  EXPECT_THROW((void)admit_in(tx, claim(2'000), {.jump_max = 1'000}), Implausible);
  EXPECT_ANY_THROW(tx.commit());
  EXPECT_EQ(fence(), "34 h ");
}

TEST_F(Admit, WithoutTheSchemaItSaysWhatToInstall) {
  const Database empty{Database::Fences::missing};
  const auto connection = empty.connect();
  pqxx::work tx{*connection};
  try {
    (void)admit_in(tx, claim(34));
    FAIL() << "admitted without fences";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("fenceguard sql postgres | psql"));
  }
  EXPECT_ANY_THROW(tx.commit());
}

TEST_F(Admit, DrainAndCutAreThisCallsOwn) {
  advance(33);
  pqxx::work older{*connection_};
  ASSERT_EQ(admit_in(older, claim(33)).verdict, Verdict::admitted);
  const auto other = database_.connect();
  {
    pqxx::work tx{*other};
    EXPECT_THROW((void)admit_in(tx, claim(34), {.drain = std::chrono::milliseconds{20}, .cut = false}),
                 Unavailable);
    EXPECT_ANY_THROW(tx.commit());
  }
  pqxx::work tx{*other};
  EXPECT_EQ(admit_in(tx, claim(34), {.drain = std::chrono::milliseconds{20}}).verdict, Verdict::admitted);
  tx.commit();
  EXPECT_ANY_THROW(postgres::exec_params(older, "UPDATE account SET balance = $1 WHERE id = 42", 1));
  EXPECT_ANY_THROW(postgres::exec_params(older, "UPDATE account SET balance = 1 WHERE id = 42"));
  EXPECT_ANY_THROW(older.commit());
  EXPECT_EQ(balance(), 100);
}

// An advance needs a snapshot that is newer than its wait; a claim that equals the fence is good at any
// level.
TEST_F(Admit, AboveReadCommittedOnlyAClaimThatWasAdvancedIsAdmitted) {
  const auto at_level = [&](auto tx) {
    try {
      const auto verdict = admit_in(tx, claim(34)).verdict;
      set_balance(tx, 70);
      tx.commit();
      return std::string{to_string(verdict)};
    } catch (const Unavailable&) {
      EXPECT_ANY_THROW(tx.commit());
      return std::string{"unavailable"};
    }
  };
  using Repeatable = pqxx::transaction<pqxx::repeatable_read>;
  using Serializable = pqxx::transaction<pqxx::serializable>;
  EXPECT_EQ(at_level(Repeatable{*connection_}), "unavailable");
  EXPECT_EQ(at_level(Serializable{*connection_}), "unavailable");
  EXPECT_EQ(fence(), "");
  advance(34);
  EXPECT_EQ(at_level(Repeatable{*connection_}), "admitted");
  EXPECT_EQ(at_level(Serializable{*connection_}), "admitted");
  EXPECT_EQ(balance(), 70);
}

TEST_F(Admit, ASnapshotThatIsOlderThanATakeoverAdmitsNothing) {
  advance(33);
  pqxx::transaction<pqxx::repeatable_read> tx{*connection_};
  tx.exec("SELECT count(*) FROM account");
  advance(34);
  bool is_written = false;
  try {
    is_written = admit_in(tx, claim(33)).verdict == Verdict::admitted;
  } catch (const Unavailable&) {
  }
  EXPECT_FALSE(is_written);
  EXPECT_ANY_THROW(tx.commit());
}

// libpqxx takes PostgreSQL's answer ROLLBACK for a commit.
TEST_F(Admit, OurCommitTellsARollbackFromACommit) {
  {
    pqxx::work tx{*connection_};
    ASSERT_EQ(admit_in(tx, claim(34)).verdict, Verdict::admitted);
    set_balance(tx, 70);
    EXPECT_ANY_THROW(postgres::exec_params(tx, "SELECT 1 / ($1)::int", 0));
    EXPECT_THROW(postgres::commit(tx), Unavailable);
  }
  EXPECT_EQ(balance(), 100);
  pqxx::work tx{*connection_};
  ASSERT_EQ(admit_in(tx, claim(34)).verdict, Verdict::admitted);
  set_balance(tx, 70);
  postgres::commit(tx);
  EXPECT_EQ(balance(), 70);
}

TEST_F(Admit, OfSeveralClaimsAllOrNoneAreAdmitted) {
  const std::vector<Claim> claims{claim(7, "b", "accounts/2"), claim(5, "a", R"(accounts/"1"\x)")};
  {
    pqxx::work tx{*connection_};
    const auto rulings = admit_all_in(tx, claims);
    ASSERT_EQ(rulings.size(), 2u);
    EXPECT_EQ(rulings[0].highest, 7);
    EXPECT_EQ(rulings[1].highest, 5);
    tx.commit();
  }
  advance(8, "c", "accounts/2");
  pqxx::work tx{*connection_};
  const auto rulings = admit_all_in(tx, std::vector{claim(6, "a", R"(accounts/"1"\x)"), claims[0]});
  EXPECT_EQ(rulings[0].verdict, Verdict::admitted);
  EXPECT_EQ(rulings[0].highest, 5);
  EXPECT_EQ(rulings[1].verdict, Verdict::stale);
  EXPECT_EQ(rulings[1].highest, 8);
  EXPECT_ANY_THROW(postgres::exec_params(tx, "UPDATE account SET balance = $1 WHERE id = 42", 1));
  EXPECT_ANY_THROW(tx.commit());
  EXPECT_EQ(fence(R"(accounts/"1"\x)"), "5 a ");
  EXPECT_EQ(balance(), 100);
}

TEST_F(Admit, TwoClaimsToOneResourceAreInvalid) {
  pqxx::work tx{*connection_};
  EXPECT_THROW((void)admit_all_in(tx, std::vector{claim(1), claim(2)}), InvalidInput);
  EXPECT_ANY_THROW(tx.commit());
  const auto other = database_.connect();
  pqxx::work empty{*other};
  EXPECT_THROW((void)admit_all_in(empty, {}), InvalidInput);
}

}  // namespace
}  // namespace fenceguard::test
