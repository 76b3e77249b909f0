#include <gmock/gmock.h>

#include <atomic>

#include "tests/etcd/guard/space.hpp"
#include "tests/process/proxy.hpp"

namespace fenceguard::test {
namespace {

using etcd::put;
using testing::HasSubstr;

class EtcdGuard : public testing::Test {
 protected:
  etcd::WriteResult write(const Claim& claim, const std::string& value) {
    return guard_.write(claim, {put(space_.key(), value)});
  }

  EtcdSpace space_{shared_cluster()};
  etcd::Client client_{space_.address()};
  etcd::Guard guard_{client_};
};

TEST_F(EtcdGuard, FenceAndDataAreWrittenTogether) {
  space_.set(space_.key("old"), "before");
  const auto written =
      guard_.write(claim_of(34, "h", "r", 7),
                   {etcd::get(space_.key("old")), put(space_.key(), "v"), etcd::remove(space_.key("old"))});
  EXPECT_TRUE(written.is_done());
  ASSERT_EQ(written.answers.size(), 3u);
  EXPECT_EQ(written.answers[0].found.at(0).value, "before");
  EXPECT_EQ(written.answers[2].count, 1);
  EXPECT_EQ(written.ruling.fence, (Fence{Token{34}, Holder{"h"}, Sequence{7}, false}));
  EXPECT_EQ(space_.value(), "v");
  EXPECT_EQ(space_.get(space_.key("old")), "");
  EXPECT_EQ(space_.fence(), "34 7 open h");
}

TEST_F(EtcdGuard, ARefusedWriteHasNoAnswersAndChangesNothing) {
  EXPECT_TRUE(write(claim_of(34, "new"), "by new").is_done());
  const auto refused = write(claim_of(33, "old"), "late");
  EXPECT_EQ(refused.ruling.verdict, Verdict::stale);
  EXPECT_EQ(refused.ruling.highest, 34);
  EXPECT_FALSE(refused.is_done());
  EXPECT_TRUE(refused.answers.empty());
  EXPECT_EQ(write(claim_of(34, "twin"), "twin").ruling.verdict, Verdict::conflict);
  EXPECT_EQ(space_.value(), "by new");
  EXPECT_EQ(space_.fence(), "34 - open new");
}

TEST_F(EtcdGuard, AnUninitialisedNamespaceIsUnavailableAndNamesTheCommand) {
  space_.remove(space_.keys().floor());
  for (int again = 0; again < 2; ++again) {
    const auto fault = fault_of_call([&] { return write(claim_of(5), "v"); });
    EXPECT_EQ(fault.kind, FaultKind::unavailable);
    EXPECT_THAT(fault.message, HasSubstr("fenceguard fence init"));
    EXPECT_EQ(kind_of([&] { return guard_.advance(claim_of(5)); }), FaultKind::unavailable);
  }
  EXPECT_EQ(space_.value() + space_.fence(), "");
  space_.set_floor(4);
  EXPECT_TRUE(write(claim_of(5), "v").is_done());
  // Lost while the guard remembers it.
  space_.remove(space_.keys().floor());
  EXPECT_EQ(kind_of([&] { return write(claim_of(6), "w"); }), FaultKind::unavailable);
  EXPECT_EQ(space_.value(), "v");
}

TEST_F(EtcdGuard, WhatIsNoFenceOrFloorOfOursIsUnavailableAndStaysAsItIs) {
  for (const char* damage : {"", "x", "7", "7 - open", "07 - open h", "7 -1 open h", "7 - ajar h",
                             "7 - open h h", "0 - open h", "99999999999999999999 - open h"}) {
    space_.set(space_.keys().fence(Resource{"r"}), damage);
    const auto fault = fault_of_call([&] { return write(claim_of(9), "v"); });
    EXPECT_EQ(fault.kind, FaultKind::unavailable) << damage;
    EXPECT_THAT(fault.message, HasSubstr("rebase")) << damage;
    EXPECT_EQ(space_.fence(), damage);
  }
  for (const char* damage : {"", "x", "-1", "01"}) {
    space_.set(space_.keys().floor(), damage);
    EXPECT_EQ(kind_of([&] { return write(claim_of(9, "h", "other"), "v"); }), FaultKind::unavailable)
        << damage;
  }
  EXPECT_EQ(space_.value(), "");
}

TEST_F(EtcdGuard, OwnComparesThatFailAreAnAnswerOfTheirOwnAndTheTokenStays) {
  space_.set(space_.key("lock"), "yours");
  const etcd::Compare mine = etcd::value_is(space_.key("lock"), "mine");
  const auto written = guard_.write(claim_of(7, "h", "r", 1), {put(space_.key(), "v")}, {mine});
  EXPECT_EQ(written.ruling.verdict, Verdict::admitted);
  EXPECT_FALSE(written.compares_held);
  EXPECT_FALSE(written.is_done());
  EXPECT_TRUE(written.answers.empty());
  EXPECT_EQ(space_.value(), "");
  EXPECT_EQ(space_.fence(), "7 - open h") << "advanced, and the sequence is free";
  EXPECT_EQ(write(claim_of(6, "older"), "late").ruling.verdict, Verdict::stale);
  space_.set(space_.key("lock"), "mine");
  EXPECT_TRUE(guard_.write(claim_of(7, "h", "r", 1), {put(space_.key(), "v")}, {mine}).is_done());
  EXPECT_EQ(space_.value(), "v");
  // A claim that is refused is refused, whatever the compares say.
  const auto refused = guard_.write(claim_of(6, "older"), {put(space_.key(), "late")}, {mine});
  EXPECT_EQ(refused.ruling.verdict, Verdict::stale);
  EXPECT_TRUE(refused.compares_held);
  const auto again = guard_.write(claim_of(7, "h", "r", 1), {put(space_.key(), "twice")}, {mine});
  EXPECT_EQ(again.ruling.verdict, Verdict::duplicate);
  EXPECT_EQ(space_.value(), "v");
}

TEST_F(EtcdGuard, KeysOfOursCanNeitherBeWrittenNorReadBesideAClaim) {
  const auto own = space_.keys().floor();
  const auto prefix = client_.address().prefix;
  const auto range = [](etcd::Op op, const std::string& key, const std::string& end) {
    op.key = key;
    op.range_end = end;
    return op;
  };
  const std::vector<etcd::Op> reserved{
      put(own, "0"),
      etcd::remove(own),
      etcd::get(space_.keys().fence(Resource{"r"})),
      etcd::remove_all(prefix + "/"),
      etcd::remove_all(prefix),
      etcd::remove_all(prefix + "/fence/r"),
      range(etcd::remove(""), std::string(1, '\0'), std::string(1, '\0')),
      range(etcd::remove(""), "a", "z"),
      range(etcd::get(""), prefix + "/z", std::string(1, '\0')),
  };
  for (std::size_t i = 0; i < reserved.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(kind_of([&] {
                return guard_.write(claim_of(5), {put(space_.key(), "v"), reserved[i]});
              }),
              FaultKind::invalid_input);
    etcd::Txn txn{{}, {}, {reserved[i]}};
    EXPECT_EQ(kind_of([&] { (void)guard_.admit_in(claim_of(5), txn); }), FaultKind::invalid_input);
  }
  // Beside them, up to the very edge.
  for (const auto& key : {prefix, prefix + ".", prefix + "0", prefix + "-x/y"})
    EXPECT_TRUE(guard_.write(claim_of(5), {put(key, "v")}).is_done()) << key;
  const auto below = range(etcd::get(""), prefix, prefix + "/");
  const auto above = range(etcd::get(""), prefix + "0", std::string(1, '\0'));
  EXPECT_TRUE(guard_.write(claim_of(5), {below, above}).is_done());
}

TEST_F(EtcdGuard, WhatNoTransactionTakesIsInvalidAndSendsNothing) {
  std::vector<etcd::Op> ops;
  for (int i = 0; i < 126; ++i) ops.push_back(put(space_.key(std::to_string(i)), "v"));
  EXPECT_TRUE(guard_.write(claim_of(5, "h", "r", 1), ops).is_done()) << "with fence and floor 128";
  ops.push_back(put(space_.key("more"), "v"));
  const auto fault = fault_of_call([&] { return guard_.write(claim_of(6), ops); });
  EXPECT_EQ(fault.kind, FaultKind::invalid_input);
  EXPECT_THAT(fault.message, HasSubstr("128"));
  const std::vector<etcd::Compare> many(127, etcd::is_absent(space_.key("x")));
  EXPECT_EQ(kind_of([&] { return guard_.write(claim_of(6), {put(space_.key(), "v")}, many); }),
            FaultKind::invalid_input);
  EXPECT_EQ(kind_of([&] { return guard_.write(claim_of(6), {}); }), FaultKind::invalid_input);
  const Claim twice[]{claim_of(6), claim_of(7)};
  EXPECT_EQ(kind_of([&] { return guard_.write_all(twice, {put(space_.key(), "v")}); }),
            FaultKind::invalid_input);
  EXPECT_EQ(kind_of([&] { return guard_.write_all({}, {put(space_.key(), "v")}); }),
            FaultKind::invalid_input);
  EXPECT_EQ(kind_of([&] { return guard_.read(claim_of(6), {put(space_.key(), "v")}); }),
            FaultKind::invalid_input);
  EXPECT_EQ(space_.fence(), "5 1 open h");
}

TEST_F(EtcdGuard, SeveralClaimsAreAllOrNone) {
  EXPECT_TRUE(guard_.write(claim_of(9, "o", "b"), {put(space_.key(), "0")}).is_done());
  const Claim claims[]{claim_of(5, "h", "a"), claim_of(8, "h", "b")};
  const auto refused = guard_.write_all(claims, {put(space_.key(), "1")});
  EXPECT_FALSE(refused.is_done);
  EXPECT_EQ(refused.rulings.at(0).verdict, Verdict::admitted);
  EXPECT_EQ(refused.rulings.at(0).highest, 0) << "it moved nothing";
  EXPECT_EQ(refused.rulings.at(1).verdict, Verdict::stale);
  EXPECT_EQ(space_.fence("a"), "");
  EXPECT_EQ(space_.value(), "0");
  const Claim good[]{claim_of(5, "h", "a", 1), claim_of(10, "h", "b", 2)};
  const auto done = guard_.write_all(good, {put(space_.key(), "2")});
  EXPECT_TRUE(done.is_done);
  EXPECT_EQ(done.answers.size(), 1u);
  EXPECT_EQ(space_.fence("a") + "|" + space_.fence("b"), "5 1 open h|10 2 open h");
  EXPECT_EQ(space_.value(), "2");
}

TEST_F(EtcdGuard, AFencedReadAdvancesFirstAndUsesUpNoSequence) {
  space_.set(space_.key(), "v");
  const auto read = guard_.read(claim_of(7, "h", "r", 3), {etcd::get(space_.key())});
  EXPECT_TRUE(read.is_done());
  ASSERT_EQ(read.answers.size(), 1u);
  EXPECT_EQ(read.answers[0].found.at(0).value, "v");
  EXPECT_EQ(space_.fence(), "7 - open h");
  const auto refused = guard_.read(claim_of(6, "old"), {etcd::get(space_.key())});
  EXPECT_EQ(refused.ruling.verdict, Verdict::stale);
  EXPECT_TRUE(refused.answers.empty());
  // An operation that writes nothing is none that a sequence could count.
  EXPECT_TRUE(guard_.write(claim_of(7, "h", "r", 3), {etcd::get(space_.key())}).is_done());
  EXPECT_EQ(space_.fence(), "7 - open h");
}

// What is absurd is refused and moves nothing; whether it is decides the store and not what this guard
// happens to have seen.
TEST_F(EtcdGuard, ImplausibilityDependsOnAllFencesNotOnlyOnSeenOnes) {
  etcd::Guard bounded{client_, 100};
  const auto advance = [&](std::int64_t token, const char* resource) {
    return bounded.advance(claim_of(token, "h", resource));
  };
  EXPECT_EQ(advance(100, "a").highest, 100);
  EXPECT_EQ(kind_of([&] { return advance(201, "b"); }), FaultKind::implausible);
  EXPECT_EQ(space_.fence("b"), "");
  // Another guard raises another resource, and this one never saw it.
  (void)guard_.advance(claim_of(5'000, "h", "c"));
  EXPECT_EQ(advance(5'100, "b").verdict, Verdict::admitted);
  EXPECT_EQ(kind_of([&] { return advance(5'201, "b"); }), FaultKind::implausible);
  space_.set_floor(9'000);
  EXPECT_EQ(advance(9'100, "b").verdict, Verdict::admitted);
  etcd::Txn txn{{}, {put(space_.key(), "v")}, {}};
  EXPECT_EQ(kind_of([&] { (void)bounded.admit_in(claim_of(20'000), txn); }), FaultKind::implausible);
  // What raises nothing is judged, however the bound is.
  EXPECT_EQ(etcd::Guard(client_, 1).advance(claim_of(9'100, "h", "b")).verdict, Verdict::admitted);
}

// etcd 3.4 may answer a plain read from the past, by which a good claim would look absurd.
TEST_F(EtcdGuard, WhetherATokenIsAbsurdIsDecidedInTheLogAndNotByAPlainRead) {
  std::atomic<int> reads{0};
  Proxy proxy{shared_cluster().member(0).port(),
              [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (direction == Proxy::Direction::to_server && piece.starts_with("POST /v3/kv/range"))
                  ++reads;
                return piece.size();
              }};
  etcd::Client client{space_.address_by(proxy.port())};
  etcd::Guard bounded{client, 100};
  EXPECT_EQ(kind_of([&] { return bounded.advance(claim_of(201)); }), FaultKind::implausible);
  EXPECT_EQ(reads, 0);
}

// The server answers such a one in words that leave open what became of it.
TEST_F(EtcdGuard, WhatIsTooLargeForATransactionIsRefusedBeforeItIsSent) {
  EXPECT_EQ(kind_of([&] { return write(claim_of(5), std::string(2'500'000, 'x')); }),
            FaultKind::invalid_input);
  EXPECT_EQ(space_.fence() + space_.value(), "");
  EXPECT_EQ(kind_of([&] { return write(claim_of(5), std::string(1'572'800, 'x')); }),
            FaultKind::invalid_input);
  EXPECT_TRUE(write(claim_of(5), std::string(1'500'000, 'x')).is_done());
}

// How many transactions a guarded write is: counted at a proxy.
TEST_F(EtcdGuard, WriteIsOneRoundTripIfCachedAndTwoIfNot) {
  std::atomic<int> requests{0};
  Proxy proxy{shared_cluster().member(0).port(),
              [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (direction == Proxy::Direction::to_server && piece.starts_with("POST ")) ++requests;
                return piece.size();
              }};
  etcd::Client counted{space_.address_by(proxy.port())};
  etcd::Guard guard{counted};
  const auto trips = [&](const Claim& claim) {
    requests = 0;
    (void)guard.write(claim, {put(space_.key(), "v")});
    return requests.load();
  };
  EXPECT_EQ(trips(claim_of(5)), 2) << "the floor was not known";
  EXPECT_EQ(trips(claim_of(5)), 1);
  EXPECT_EQ(trips(claim_of(6)), 1) << "an advance rides along";
  EXPECT_EQ(trips(claim_of(6, "h", "r", 1)), 1);
  EXPECT_EQ(trips(claim_of(6, "h", "r", 1)), 1) << "so does a duplicate";
  EXPECT_EQ(trips(claim_of(5)), 1) << "and a refusal";
  EXPECT_EQ(trips(claim_of(1, "h", "new")), 1);
  (void)guard_.advance(claim_of(8));
  EXPECT_EQ(trips(claim_of(9)), 2) << "somebody else moved the fence";
  space_.set_floor(20);
  EXPECT_EQ(trips(claim_of(21)), 2) << "or the floor";
  EXPECT_EQ(trips(claim_of(22)), 1);
}

TEST_F(EtcdGuard, AGuardThatRemembersFewFencesGivesTheSameAnswers) {
  etcd::Guard forgetful{client_, 0, 1};
  for (int round = 1; round < 5; ++round) {
    for (const char* resource : {"a", "b", "c", "d"})
      EXPECT_EQ(forgetful.advance(claim_of(round, "h", resource)).verdict, Verdict::admitted);
  }
  for (const char* resource : {"a", "b", "c", "d"})
    EXPECT_EQ(forgetful.advance(claim_of(3, "h", resource)).verdict, Verdict::stale);
}

}  // namespace
}  // namespace fenceguard::test
