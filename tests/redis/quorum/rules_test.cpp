// Single histories of the quorum's rules, step by step.

#include <gtest/gtest.h>

#include <vector>

#include "adapters/redis/quorum/attempt.hpp"
#include "adapters/redis/quorum/raise.hpp"
#include "tests/redis/quorum/model.hpp"

namespace fenceguard::test {
namespace {

using namespace redis::quorum;

class QuorumRules : public testing::Test {
 protected:
  void found(std::vector<std::int64_t> counters, Flaws flaws = {}) {
    nodes_.assign(counters.size(), ModelNode{flaws});
    for (std::size_t i = 0; i < counters.size(); ++i) nodes_[i].found("first", counters[i]);
  }

  Attempt attempt(const std::string& holder) {
    return Attempt{{nodes_.size(), "r", holder, "n" + std::to_string(++nonces_), 1'000}};
  }

  Answer at(const Send& send) { return nodes_[send.node].handle(*send.request, {now_ms_, 1'000'000}); }

  // Lets the machine talk to all nodes but those that are out, until it is done.
  void finish(Attempt& attempt, Sends sends, std::vector<std::size_t> out = {}) {
    while (!sends.empty()) {
      Sends next;
      for (const auto& send : sends) {
        if (std::ranges::count(out, send.node) > 0) continue;
        for (auto& more : attempt.on_answer(send.node, at(send), 0)) next.push_back(std::move(more));
      }
      if (next.empty() && !attempt.is_done()) next = attempt.on_time_out(0);
      sends = std::move(next);
    }
  }

  Attempt take(const std::string& holder, std::vector<std::size_t> out = {}) {
    auto one = attempt(holder);
    finish(one, one.start(), std::move(out));
    return one;
  }

  // A taker heard the largest number from a node that then forgets it. While the taker has not confirmed, the
  // node is restored and a second taker uses it. Answers the two tokens, 0 for none.
  std::pair<std::int64_t, std::int64_t> restore_under_an_attempt() {
    auto first = attempt("a");
    const auto asks = first.start();
    for (const std::size_t node : {0, 1}) (void)first.on_answer(node, at(asks[node]), 0);
    nodes_[0].forget();
    Raise raise{{3, 0, "second"}};
    auto sends = raise.start();
    while (!sends.empty() && raise.round() < 2) {
      Sends next;
      for (const auto& send : sends) {
        for (auto& more : raise.on_answer(send.node, at(send))) next.push_back(std::move(more));
      }
      sends = std::move(next);
    }
    finish(first, first.on_time_out(0), {2});
    while (!sends.empty()) {
      Sends next;
      for (const auto& send : sends) {
        for (auto& more : raise.on_answer(send.node, at(send))) next.push_back(std::move(more));
      }
      sends = std::move(next);
    }
    EXPECT_EQ(raise.ending(), Raise::Ending::done);
    const auto second = take("b", {1});
    return {first.ending() == Attempt::Ending::granted ? first.token() : 0,
            second.ending() == Attempt::Ending::granted ? second.token() : 0};
  }

  std::vector<ModelNode> nodes_;
  std::int64_t now_ms_ = 0;
  int nonces_ = 0;
};

TEST_F(QuorumRules, TheTokenIsAboveEveryEarlierOneWhicheverMajoritiesAreHeard) {
  found({1, 1, 9});
  const auto first = take("a", {1});
  ASSERT_EQ(first.ending(), Attempt::Ending::granted);
  EXPECT_EQ(first.token(), 10);
  for (auto& node : nodes_) node.expire("r");
  const auto second = take("b", {2});
  ASSERT_EQ(second.ending(), Attempt::Ending::granted);
  EXPECT_EQ(second.token(), 11);
}

TEST_F(QuorumRules, WhereAMajorityAnswersTheTokenThereIsNoSecondRound) {
  found({7, 7, 7});
  auto one = attempt("a");
  const auto asks = one.start();
  for (const auto& ask : asks) EXPECT_TRUE(one.on_answer(ask.node, at(ask), 0).empty());
  EXPECT_EQ(one.ending(), Attempt::Ending::granted);
  EXPECT_EQ(one.token(), 8);
}

TEST_F(QuorumRules, MinorityOfItsHoldsIsNoReasonForASecondToken) {
  found({5, 5, 5});
  ASSERT_EQ(take("a").token(), 6);
  const auto again = take("a");
  EXPECT_EQ(again.ending(), Attempt::Ending::again);
  EXPECT_EQ(again.token(), 6);
  nodes_[0].expire("r");
  nodes_[1].expire("r");
  EXPECT_EQ(take("b", {0, 2}).ending(), Attempt::Ending::short_of_votes);
  auto other = attempt("b");
  (void)at(other.start()[0]);
  EXPECT_EQ(take("a").ending(), Attempt::Ending::left_over);
  now_ms_ = 2'000;
  EXPECT_EQ(take("a").ending(), Attempt::Ending::granted);
}

TEST_F(QuorumRules, RemainsAtAMinorityDoNotBlockAFreeMajority) {
  found({5, 5, 5});
  ASSERT_EQ(take("a").token(), 6);
  nodes_[0].expire("r");
  nodes_[1].expire("r");
  const auto next = take("a");
  EXPECT_EQ(next.ending(), Attempt::Ending::granted);
  EXPECT_EQ(next.token(), 7);
  EXPECT_EQ(take("a").token(), 7);
}

TEST_F(QuorumRules, WhatIsWithdrawnAfterAGrantIsNoPartOfTheTenure) {
  found({9, 5, 5});
  auto one = attempt("a");
  Sends sends;
  for (const auto& ask : one.start()) {
    for (auto& more : one.on_answer(ask.node, at(ask), 0)) sends.push_back(std::move(more));
  }
  ASSERT_EQ(sends.size(), 2U);
  (void)at(sends[1]);  // its answer is lost
  const auto late = one.on_answer(sends[0].node, at(sends[0]), 0);
  EXPECT_TRUE(late.empty());
  const auto withdrawals = one.on_time_out(0);
  ASSERT_EQ(one.ending(), Attempt::Ending::granted);
  ASSERT_EQ(withdrawals.size(), 1U);
  EXPECT_EQ(at(withdrawals[0]).kind, Answer::Kind::refused);
}

TEST_F(QuorumRules, ATermThatIsUsedUpByTheAskingIsNoGrant) {
  found({5, 5, 5});
  auto one = attempt("a");
  Sends sends;
  for (const auto& ask : one.start()) sends = one.on_answer(ask.node, at(ask), 988);
  EXPECT_EQ(one.ending(), Attempt::Ending::too_late);
  EXPECT_EQ(sends.size(), 3U);
}

// What a node answered and then forgot must not count in a grant that is confirmed after its restoration
// looked.
TEST_F(QuorumRules, ARestorationEndsTheAttemptsThatMayRestOnWhatWasForgotten) {
  found({20, 3, 3});
  const auto [first, second] = restore_under_an_attempt();
  EXPECT_EQ(first, 0);
  EXPECT_GT(second, 0);
}

TEST_F(QuorumRules, WithoutErasTheSameHistoryGrantsALowerTokenAfterAHigherOne) {
  found({20, 3, 3}, {.ignores_eras = true});
  const auto [first, second] = restore_under_an_attempt();
  EXPECT_GT(first, second);
  EXPECT_GT(second, 0);
}

TEST_F(QuorumRules, ANodeThatForgotDoesNotVote) {
  found({5, 5, 5});
  nodes_[0].forget();
  EXPECT_EQ(take("a", {1}).ending(), Attempt::Ending::short_of_votes);
  EXPECT_EQ(take("a").ending(), Attempt::Ending::granted);
}

}  // namespace
}  // namespace fenceguard::test
