// What has to go ahead of a statement, by what was sent and what the server has said.

#include "server/postgres/relay/transaction_state.hpp"

#include <gtest/gtest.h>

namespace fenceguard::pgwire {
namespace {

bool needs_admission(const TransactionState& transaction, Kind kind) {
  return transaction.prelude_of(kind).admission;
}

TEST(TransactionStateTest, FirstStatementThatMayWriteNeedsTheAdmission) {
  TransactionState transaction;
  for (const auto kind : {Kind::begin, Kind::set_transaction, Kind::passive, Kind::end, Kind::discard})
    EXPECT_FALSE(needs_admission(transaction, kind));
  for (const auto kind : {Kind::ordinary, Kind::call, Kind::rollback_to, Kind::refused})
    EXPECT_TRUE(needs_admission(transaction, kind));
  transaction.send_admission();
  EXPECT_FALSE(needs_admission(transaction, Kind::ordinary));
}

TEST(TransactionStateTest, DiscardAllInABlockIsOrdinary) {
  TransactionState transaction;
  EXPECT_FALSE(transaction.take_ready('T'));
  EXPECT_TRUE(needs_admission(transaction, Kind::discard));
}

TEST(TransactionStateTest, AbortedTransactionNeedsNothing) {
  TransactionState transaction;
  EXPECT_FALSE(transaction.take_ready('E'));
  EXPECT_FALSE(needs_admission(transaction, Kind::ordinary));
  EXPECT_FALSE(transaction.prelude_of(Kind::call).block);
}

// The server has not said yet which transaction comes behind it.
TEST(TransactionStateTest, BehindAnEndInTheFlightNothingMayPrecede) {
  for (const auto kind : {Kind::end, Kind::chain}) {
    TransactionState transaction;
    EXPECT_FALSE(transaction.take_ready('T'));
    transaction.send_admission();
    EXPECT_FALSE(transaction.end_with_execute(kind));
    EXPECT_TRUE(needs_admission(transaction, Kind::passive));
    EXPECT_EQ(transaction.status(), kind == Kind::chain ? 'T' : 'I');
    EXPECT_FALSE(transaction.take_ready('I'));
    EXPECT_FALSE(needs_admission(transaction, Kind::passive));
  }
}

TEST(TransactionStateTest, UnforeseenEndTakesTheAdmissionAway) {
  TransactionState transaction;
  transaction.send_admission();
  transaction.take_unforeseen_end();
  EXPECT_FALSE(transaction.is_admitted());
  EXPECT_TRUE(transaction.needs_admission_first());
}

TEST(TransactionStateTest, CallOutsideABlockGetsOneOfOurs) {
  TransactionState transaction;
  EXPECT_TRUE(transaction.prelude_of(Kind::call).block);
  transaction.begin_own_block();
  EXPECT_FALSE(transaction.prelude_of(Kind::call).block);
  EXPECT_TRUE(transaction.is_in_own_block());
  // It failed, and is rolled back before the client is ready.
  EXPECT_TRUE(transaction.take_ready('E'));
  EXPECT_FALSE(transaction.take_ready('I'));
  EXPECT_TRUE(transaction.prelude_of(Kind::call).block);
}

TEST(TransactionStateTest, ClientsOwnBeginOrEndTakesOurBlockOver) {
  TransactionState transaction;
  transaction.begin_own_block();
  EXPECT_TRUE(transaction.begin_block());
  EXPECT_FALSE(transaction.is_in_own_block());
  EXPECT_FALSE(transaction.take_ready('T'));
  for (const auto kind : {Kind::end, Kind::chain}) {
    TransactionState other;
    other.begin_own_block();
    EXPECT_TRUE(other.end_with_execute(kind));
    EXPECT_FALSE(other.is_in_own_block());
    EXPECT_EQ(other.prelude_of(Kind::call).block, kind == Kind::end);
    // Should it not have come about.
    other.undo_end_of_own_block();
    EXPECT_TRUE(other.take_ready('E'));
  }
}

TEST(TransactionStateTest, ReadOnlyIsHandedOnByAChainAlone) {
  Statements read_only;
  read_only.says_read_only = true;
  TransactionState transaction;
  transaction.set_access(read_only);
  transaction.end_with_query(Kind::chain);
  EXPECT_TRUE(transaction.access().is_read_only);
  EXPECT_TRUE(transaction.access().is_chained_read_only);
  transaction.end_with_query(Kind::end);
  EXPECT_FALSE(transaction.access().is_read_only);
  transaction.set_access(read_only);
  EXPECT_FALSE(transaction.take_ready('I'));
  EXPECT_FALSE(transaction.access().is_read_only);
}

// It keeps what it was handed, and not what was set in it.
TEST(TransactionStateTest, AbortedTransactionChainsWhatItWasHanded) {
  Statements read_only;
  read_only.says_read_only = true;
  TransactionState transaction;
  EXPECT_FALSE(transaction.take_ready('T'));
  transaction.set_access(read_only);
  EXPECT_FALSE(transaction.take_ready('E'));
  transaction.end_with_query(Kind::chain);
  EXPECT_FALSE(transaction.access().is_read_only);
}

}  // namespace
}  // namespace fenceguard::pgwire
