#include "tests/etcd/guard/space.hpp"

namespace fenceguard::test {
namespace {

using etcd::put;
using Ending = etcd::Admission::Ending;

class EtcdOwnTransaction : public testing::Test {
 protected:
  struct Sent {
    etcd::Admission::Answer answer;
    etcd::TxnAnswer txn;
  };
  // One attempt.
  Sent send(const Claim& claim, etcd::Txn txn) {
    const auto admission = guard_.admit_in(claim, txn);
    auto answer = client_.txn(txn);
    return {guard_.ruling_of(admission, answer), std::move(answer)};
  }
  etcd::Txn setting(const std::string& value) { return {{}, {put(space_.key(), value)}, {}}; }

  EtcdSpace space_{shared_cluster()};
  etcd::Client client_{space_.address()};
  etcd::Guard guard_{client_};
};

TEST_F(EtcdOwnTransaction, TheFirstOneLearnsAndWritesNothingTheNextIsDone) {
  EXPECT_EQ(send(claim_of(5), setting("v")).answer.ending, Ending::again);
  EXPECT_EQ(space_.value() + space_.fence(), "");
  const auto sent = send(claim_of(5), setting("v"));
  EXPECT_EQ(sent.answer.ending, Ending::done);
  EXPECT_EQ(sent.answer.ruling.verdict, Verdict::admitted);
  EXPECT_EQ(space_.value(), "v");
  EXPECT_EQ(space_.fence(), "5 - open h");
}

TEST_F(EtcdOwnTransaction, ARefusalIsToldWhetherTheGuardRemembersTheFenceOrNot) {
  space_.set(space_.keys().fence(Resource{"r"}), "9 - open new");
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto sent = send(claim_of(8, "old"), setting("late"));
    EXPECT_EQ(sent.answer.ending, Ending::refused) << attempt;
    EXPECT_EQ(sent.answer.ruling.verdict, Verdict::stale);
    EXPECT_EQ(sent.answer.ruling.highest, 9);
    EXPECT_FALSE(sent.txn.succeeded);
  }
  EXPECT_EQ(space_.value(), "");
}

TEST_F(EtcdOwnTransaction, OwnComparesStandOrFallWithTheFence) {
  (void)guard_.advance(claim_of(4));
  auto txn = setting("v");
  txn.compare = {etcd::value_is(space_.key("lock"), "mine")};
  txn.otherwise = {etcd::get(space_.key("lock"))};
  space_.set(space_.key("lock"), "yours");
  const auto sent = send(claim_of(5, "h", "r", 1), txn);
  EXPECT_EQ(sent.answer.ending, Ending::compares_failed);
  EXPECT_EQ(sent.txn.answers.at(0).found.at(0).value, "yours") << "the caller's answers are in their places";
  EXPECT_EQ(space_.fence(), "4 - open h");
  space_.set(space_.key("lock"), "mine");
  EXPECT_EQ(send(claim_of(5, "h", "r", 1), txn).answer.ending, Ending::done);
  EXPECT_EQ(space_.fence(), "5 1 open h");
  EXPECT_EQ(send(claim_of(5, "h", "r", 1), txn).answer.ruling.verdict, Verdict::duplicate);
}

// As with etcd's own IsOwner(): the lock's key is one more compare, and its loss is told apart from a
// refusal.
TEST_F(EtcdOwnTransaction, TheLocksOwnKeyMayBeComparedBeside) {
  (void)guard_.advance(claim_of(4));
  space_.set(space_.key("lock/7f"), "");
  const auto created = client_.range(etcd::get(space_.key("lock/7f"))).found.at(0).create_revision;
  auto txn = setting("v");
  txn.compare = {etcd::created_at(space_.key("lock/7f"), created)};
  EXPECT_EQ(send(claim_of(4), txn).answer.ending, Ending::done);
  space_.remove(space_.key("lock/7f"));
  EXPECT_EQ(send(claim_of(4), txn).answer.ending, Ending::compares_failed);
}

TEST_F(EtcdOwnTransaction, ElseBranchThatWritesIsInvalid) {
  etcd::Txn txn{{}, {put(space_.key(), "v")}, {put(space_.key(), "w")}};
  EXPECT_EQ(kind_of([&] { (void)guard_.admit_in(claim_of(5), txn); }), FaultKind::invalid_input);
}

// Whatever happens between the admission and the sending is seen by the transaction.
TEST_F(EtcdOwnTransaction, WhatChangedAfterTheAdmissionIsSeenByTheTransaction) {
  (void)guard_.advance(claim_of(4));
  const auto between = [&](const Claim& claim, const auto& act) {
    auto txn = setting("late");
    const auto admission = guard_.admit_in(claim, txn);
    act();
    return guard_.ruling_of(admission, client_.txn(txn));
  };
  etcd::Guard other{space_.client()};
  const auto overtaken = between(claim_of(4), [&] { (void)other.advance(claim_of(6, "new")); });
  EXPECT_EQ(overtaken.ending, Ending::refused);
  EXPECT_EQ(overtaken.ruling.highest, 6);
  const auto lifted = between(claim_of(7), [&] { space_.set_floor(7); });
  EXPECT_EQ(lifted.ending, Ending::refused);
  EXPECT_EQ(lifted.ruling.highest, 7);
  const auto moved = between(claim_of(9), [&] { (void)other.advance(claim_of(8, "new")); });
  EXPECT_EQ(moved.ending, Ending::again);
  const auto gone =
      kind_of([&] { return between(claim_of(9), [&] { space_.remove(space_.keys().floor()); }).ruling; });
  EXPECT_EQ(gone, FaultKind::unavailable);
  EXPECT_EQ(space_.value(), "");
}

}  // namespace
}  // namespace fenceguard::test
