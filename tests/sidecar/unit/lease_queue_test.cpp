// Who is next for a lock: the interleavings of asks, answers, releases and callers that go away, one by one.

#include <gtest/gtest.h>

#include "server/leases/lease_queue.hpp"

namespace fenceguard {
namespace {

using namespace std::chrono_literals;
using Kind = LeaseQueue::Action::Kind;
using Id = LeaseQueue::AskId;
using Words = std::vector<std::string>;

class LeaseQueueTest : public testing::Test {
 protected:
  // An ask of a holder that the caller named, or that was drawn for it.
  Id arrive(const std::string& holder, std::chrono::milliseconds wait, bool is_named = false) {
    return queue_.arrive({resource_, Holder{holder}, is_named, now_ + wait}, now_, actions_).value_or(0);
  }
  bool grant(Id id, const std::string& holder, std::int64_t token) {
    return queue_.granted(id, claim(holder, token), 10s, now_, actions_);
  }
  [[nodiscard]] Claim claim(const std::string& holder, std::int64_t token) const {
    return {resource_, Token{token}, Holder{holder}, {}};
  }
  void pass(std::chrono::milliseconds time) {
    now_ += time;
    queue_.tick(now_, actions_);
  }

  // What the queue wanted done since the last call.
  Words wanted() {
    Words words;
    for (const auto& action : std::exchange(actions_, {})) {
      const auto id = std::to_string(action.ask);
      if (action.kind == Kind::ask) words.push_back("ask " + id);
      if (action.kind == Kind::identify) words.push_back("identify " + id);
      if (action.kind == Kind::refuse) words.push_back("refuse " + id);
      if (action.kind == Kind::dismiss) words.push_back("dismiss " + id);
      if (action.kind == Kind::revert) words.push_back("take back " + to_string(action.claim->token));
    }
    return words;
  }

  const Resource resource_{"accounts/42"};
  LeaseQueue::Time now_{1000s};
  LeaseQueue::Actions actions_;
  LeaseQueue queue_{100};
};

TEST_F(LeaseQueueTest, AFreeLockIsAskedForAtOnce) {
  const Id a = arrive("a", 0ms);
  EXPECT_EQ(wanted(), Words{"ask 1"});
  EXPECT_TRUE(grant(a, "a", 1));
  queue_.delivered(a, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  EXPECT_TRUE(queue_.is_idle());
  EXPECT_FALSE(queue_.wake_at());
}

TEST_F(LeaseQueueTest, WithoutAWaitAHeldLockIsRefused) {
  const Id a = arrive("a", 0ms);
  wanted();
  queue_.held(a, 700ms, now_, actions_);
  ASSERT_EQ(actions_.size(), 1U);
  EXPECT_EQ(actions_[0].retry_after, 700ms);
  EXPECT_EQ(wanted(), Words{"refuse 1"});
}

TEST_F(LeaseQueueTest, OnlyTheFirstInLineAsksAgain) {
  const Id a = arrive("a", 10s);
  arrive("b", 10s);
  arrive("c", 10s);
  EXPECT_EQ(wanted(), Words{"ask 1"});
  queue_.held(a, 5s, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  ASSERT_TRUE(queue_.wake_at());
  EXPECT_EQ(*queue_.wake_at(), now_ + 100ms);
  pass(100ms);
  EXPECT_EQ(wanted(), Words{"ask 1"});
  queue_.held(a, 20ms, now_, actions_);
  EXPECT_EQ(*queue_.wake_at(), now_ + 20ms);
}

TEST_F(LeaseQueueTest, AReleaseThroughThisSidecarWakesTheFirstAtOnce) {
  const Id a = arrive("a", 10s);
  arrive("b", 10s);
  queue_.held(a, 5s, now_, actions_);
  wanted();
  queue_.released(resource_, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 1"});
  EXPECT_TRUE(grant(a, "a", 2));
  queue_.delivered(a, now_, actions_);
  EXPECT_EQ(wanted(), Words{});  // known to be held
  queue_.released(resource_, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 2"});
}

// The source says 'held', the lock is released, and only then the 'held' arrives here.
TEST_F(LeaseQueueTest, AReleaseDuringTheStepIsNotMissed) {
  const Id a = arrive("a", 10s);
  wanted();
  queue_.released(resource_, now_, actions_);
  queue_.held(a, 5s, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 1"});
  queue_.held(a, 5s, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
}

TEST_F(LeaseQueueTest, AReleaseDuringTheStepOfOneThatDoesNotWaitIsNotMissedEither) {
  const Id a = arrive("a", 0ms);
  wanted();
  queue_.released(resource_, now_, actions_);
  queue_.held(a, 5s, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 1"});
  queue_.held(a, 5s, now_, actions_);
  EXPECT_EQ(wanted(), Words{"refuse 1"});
}

TEST_F(LeaseQueueTest, WhoeverDoesNotWaitDoesNotPassThoseWhoDo) {
  const Id a = arrive("a", 10s);
  queue_.held(a, 5s, now_, actions_);
  wanted();
  arrive("b", 0ms);
  EXPECT_EQ(wanted(), Words{"refuse 2"});
}

// Those who were in line when the source was asked share its answer; those who came later get one of their
// own.
TEST_F(LeaseQueueTest, OneAnswerOfTheSourceSettlesAllWhoWereInLine) {
  const Id a = arrive("a", 0ms);
  wanted();
  const Id b = arrive("b", 0ms);
  arrive("c", 0ms);
  EXPECT_EQ(wanted(), Words{});
  queue_.held(a, 5s, now_, actions_);
  EXPECT_EQ(wanted(), (Words{"refuse 1", "ask 2"}));
  arrive("d", 0ms);
  queue_.held(b, 5s, now_, actions_);
  EXPECT_EQ(wanted(), (Words{"refuse 2", "refuse 3", "ask 4"}));
}

TEST_F(LeaseQueueTest, AGrantRefusesTheOthersWhoDoNotWait) {
  const Id a = arrive("a", 0ms);
  arrive("b", 0ms);
  arrive("c", 10s);
  wanted();
  EXPECT_TRUE(grant(a, "a", 1));
  EXPECT_EQ(wanted(), Words{"refuse 2"});
  pass(100ms);
  EXPECT_EQ(wanted(), Words{"ask 3"});
}

TEST_F(LeaseQueueTest, AWaitEndsInTime) {
  const Id a = arrive("a", 10s);
  queue_.held(a, 60s, now_, actions_);
  arrive("b", 250ms);
  wanted();
  for (int i = 0; i < 2; ++i) {
    pass(100ms);
    EXPECT_EQ(wanted(), Words{"ask 1"});
    queue_.held(a, 60s, now_, actions_);
  }
  pass(50ms);
  EXPECT_EQ(wanted(), Words{"refuse 2"});
}

TEST_F(LeaseQueueTest, AnAnswerBeforeTheEndOfTheWaitIsAlwaysAsked) {
  arrive("a", 50ms);
  EXPECT_EQ(wanted(), Words{"ask 1"});
  pass(60ms);  // its step is still under way
  EXPECT_EQ(wanted(), Words{});
  queue_.held(1, 5s, now_, actions_);
  EXPECT_EQ(wanted(), Words{"refuse 1"});
}

TEST_F(LeaseQueueTest, AWaiterThatGoesAwayIsWithdrawnAndTheNextAsks) {
  const Id a = arrive("a", 10s);
  queue_.held(a, 5s, now_, actions_);
  arrive("b", 10s);
  wanted();
  queue_.gone(a, now_, actions_);
  EXPECT_EQ(wanted(), (Words{"dismiss 1", "ask 2"}));
}

TEST_F(LeaseQueueTest, AGrantWhoseCallerWentAwayDuringTheStepIsTakenBack) {
  const Id a = arrive("a", 10s);
  arrive("b", 10s);
  wanted();
  queue_.gone(a, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  EXPECT_FALSE(grant(a, "a", 5));
  EXPECT_EQ(wanted(), (Words{"dismiss 1", "take back 5"}));
  queue_.reverted(resource_, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 2"});
}

TEST_F(LeaseQueueTest, ALeaseWhoseAnswerNeverArrivedIsTakenBack) {
  const Id a = arrive("a", 0ms);
  EXPECT_TRUE(grant(a, "a", 5));
  wanted();
  queue_.undelivered(a, now_, actions_);
  EXPECT_EQ(wanted(), Words{"take back 5"});
  queue_.reverted(resource_, now_, actions_);
  EXPECT_TRUE(queue_.is_idle());
}

// a asks, is granted, its answer is lost, and a has asked again before that is known: the lease is a's to
// keep.
TEST_F(LeaseQueueTest, TheSameHolderThatHasAskedAgainKeepsItsLease) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  const Id again = arrive("a", 0ms, true);
  EXPECT_EQ(wanted(), (Words{"ask 1", "ask 2"}));
  queue_.undelivered(first, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  EXPECT_TRUE(grant(again, "a", 5));
  queue_.delivered(again, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  EXPECT_TRUE(queue_.is_idle());
}

TEST_F(LeaseQueueTest, IfTheSecondAnswerIsLostTooTheLeaseIsTakenBackOnce) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  const Id again = arrive("a", 0ms, true);
  wanted();
  queue_.undelivered(first, now_, actions_);
  EXPECT_TRUE(grant(again, "a", 5));
  queue_.undelivered(again, now_, actions_);
  EXPECT_EQ(wanted(), Words{"take back 5"});
}

// The second answer arrives before it is known that the first did not.
TEST_F(LeaseQueueTest, ALateNewsOfALostAnswerDoesNotTakeADeliveredLease) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  const Id again = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(again, "a", 5));
  queue_.delivered(again, now_, actions_);
  wanted();
  queue_.undelivered(first, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  EXPECT_TRUE(queue_.is_idle());
}

// The loss of the first answer is told while the source is asked for somebody else.
TEST_F(LeaseQueueTest, NewsOfALostAnswerDuringAStepDoesNotTakeADeliveredLease) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  const Id again = arrive("a", 0ms, true);
  EXPECT_TRUE(queue_.granted(again, claim("a", 5), 10s, now_, actions_, false));
  const Id other = arrive("b", 0ms);
  queue_.undelivered(first, now_, actions_);
  queue_.delivered(again, now_, actions_);
  wanted();
  queue_.held(other, 5s, now_, actions_);
  EXPECT_EQ(wanted(), (Words{"refuse " + std::to_string(other)}));
  EXPECT_TRUE(queue_.is_idle());
}

// The debt of the first answer goes to the third ask; the second answer, which says the same, arrives.
TEST_F(LeaseQueueTest, AnHeirDoesNotTakeBackWhatAnotherAnswerDelivered) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  const Id again = arrive("a", 0ms, true);
  EXPECT_TRUE(queue_.granted(again, claim("a", 5), 10s, now_, actions_, false));
  const Id other = arrive("b", 0ms);
  const Id successor = arrive("a", 10s, true);
  queue_.undelivered(first, now_, actions_);
  wanted();
  queue_.held(other, 5s, now_, actions_);
  EXPECT_EQ(wanted(), (Words{"refuse " + std::to_string(other), "ask " + std::to_string(successor)}));
  queue_.delivered(again, now_, actions_);
  queue_.failed(successor, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  EXPECT_TRUE(queue_.is_idle());
}

// a holds its lease and works. It asks again, as a probe, and goes away before the answer: the lease is not
// that ask's to take back.
TEST_F(LeaseQueueTest, ALostAnswerDoesNotEndATenureThatTheHolderHadBefore) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  queue_.delivered(first, now_, actions_);
  const Id probe = arrive("a", 0ms, true);
  wanted();
  EXPECT_TRUE(queue_.granted(probe, claim("a", 5), 10s, now_, actions_, false));
  queue_.undelivered(probe, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  EXPECT_TRUE(queue_.is_idle());
}

// Both answers are lost, and the second is known to be before the first.
TEST_F(LeaseQueueTest, ATenureOfWhichNoAnswerArrivedIsTakenBack) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  const Id again = arrive("a", 0ms, true);
  EXPECT_TRUE(queue_.granted(again, claim("a", 5), 10s, now_, actions_, false));
  wanted();
  queue_.undelivered(again, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  queue_.undelivered(first, now_, actions_);
  EXPECT_EQ(wanted(), Words{"take back 5"});
}

TEST_F(LeaseQueueTest, AnAskThatFailsPaysWhatItInherited) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  const Id again = arrive("a", 0ms, true);
  queue_.undelivered(first, now_, actions_);
  wanted();
  queue_.failed(again, now_, actions_);
  EXPECT_EQ(wanted(), Words{"take back 5"});
}

// Without the exclusion the ask could be told of the very lease that is being given back.
TEST_F(LeaseQueueTest, TheSameHolderAsksOnlyAfterItsLeaseWasTakenBack) {
  const Id first = arrive("a", 0ms, true);
  EXPECT_TRUE(grant(first, "a", 5));
  queue_.undelivered(first, now_, actions_);
  EXPECT_EQ(wanted(), (Words{"ask 1", "take back 5"}));
  arrive("a", 0ms, true);
  for (const auto& word : wanted()) EXPECT_NE(word, "ask 2");
  queue_.reverted(resource_, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 2"});
}

// The present holder lost its answer and asks again while others wait for its lock.
TEST_F(LeaseQueueTest, ThePresentHolderNeedNotQueueBehindThoseWhoWaitForIt) {
  const Id a = arrive("a", 10s);
  queue_.held(a, 5s, now_, actions_);
  wanted();
  const Id holder = arrive("h", 0ms, true);
  EXPECT_EQ(wanted(), Words{"identify 2"});
  queue_.identified(holder, true, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 2"});
  EXPECT_TRUE(grant(holder, "h", 3));
  EXPECT_EQ(wanted(), Words{});
}

TEST_F(LeaseQueueTest, ANamedStrangerIsRefusedOnceItIsKnownToBeOne) {
  const Id a = arrive("a", 10s);
  queue_.held(a, 5s, now_, actions_);
  wanted();
  const Id stranger = arrive("s", 0ms, true);
  queue_.identified(stranger, false, now_, actions_);
  EXPECT_EQ(wanted(), (Words{"identify 2", "refuse 2"}));
}

// The same holder twice at once: the second is in line while the first is granted.
TEST_F(LeaseQueueTest, ANamedAskThatIsIdentifiedWhileItAsksTheSourceEndsInTime) {
  const Id other = arrive("other", 10s);
  const Id named = arrive("named", 1s, true);
  EXPECT_EQ(wanted(), (Words{"ask 1", "identify 2"}));
  queue_.failed(other, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 2"});
  queue_.identified(named, false, now_, actions_);
  queue_.held(named, 10s, now_, actions_);
  pass(1s);
  EXPECT_EQ(wanted(), Words{"refuse 2"});
}

TEST_F(LeaseQueueTest, ASecondAskOfTheHolderJustGrantedComesNext) {
  const Id a = arrive("a", 0ms, true);
  arrive("b", 10s);
  const Id again = arrive("a", 0ms, true);
  wanted();
  queue_.identified(again, false, now_, actions_);  // seen before the grant
  EXPECT_TRUE(grant(a, "a", 1));
  EXPECT_EQ(wanted(), Words{"ask 3"});
  EXPECT_TRUE(grant(again, "a", 1));
  EXPECT_EQ(wanted(), Words{});
}

TEST_F(LeaseQueueTest, AFailureIsAskedAfresh) {
  const Id a = arrive("a", 10s);
  arrive("b", 10s);
  wanted();
  queue_.failed(a, now_, actions_);
  EXPECT_EQ(wanted(), Words{"ask 2"});
}

TEST_F(LeaseQueueTest, AClosedQueueDismissesAllAndTakesNoMore) {
  const Id a = arrive("a", 10s);
  arrive("b", 10s);
  wanted();
  queue_.close(actions_);
  EXPECT_EQ(wanted(), Words{"dismiss 2"});
  EXPECT_EQ(arrive("c", 10s), 0U);
  EXPECT_FALSE(queue_.is_idle());
  queue_.held(a, 5s, now_, actions_);
  EXPECT_EQ(wanted(), Words{"dismiss 1"});
  EXPECT_TRUE(queue_.is_idle());
}

TEST_F(LeaseQueueTest, AsksAreBounded) {
  for (int i = 0; i < 100; ++i) EXPECT_NE(arrive("h" + std::to_string(i), 10s), 0U);
  EXPECT_EQ(arrive("more", 10s), 0U);
}

TEST_F(LeaseQueueTest, ManyLinesSlowTheirPollsDown) {
  LeaseQueue queue{1000};
  for (int i = 0; i < 500; ++i) {
    const auto id =
        queue.arrive({Resource{"r" + std::to_string(i)}, Holder{"h"}, false, now_ + 10s}, now_, actions_);
    queue.held(*id, 5s, now_, actions_);
  }
  const auto last = queue.arrive({resource_, Holder{"h"}, false, now_ + 10s}, now_, actions_);
  actions_.clear();
  queue.held(*last, 5s, now_, actions_);
  queue.tick(now_ + 499ms, actions_);
  for (const auto& action : actions_) EXPECT_NE(action.ask, *last);
  queue.tick(now_ + 501ms, actions_);
  ASSERT_FALSE(actions_.empty());
  EXPECT_EQ(actions_.back().ask, *last);
}

TEST_F(LeaseQueueTest, WhatIsToldOfAnAskThatIsNotThereChangesNothing) {
  const Id asking = arrive("a", 1s);
  const Id waiting = arrive("b", 1s);
  (void)wanted();
  for (const Id id : {Id{99}, waiting}) {
    queue_.held(id, 1s, now_, actions_);
    EXPECT_FALSE(grant(id, "b", 7));
    queue_.failed(id, now_, actions_);
    queue_.identified(id, true, now_, actions_);
    queue_.delivered(id, now_, actions_);
    queue_.undelivered(id, now_, actions_);
  }
  queue_.gone(99, now_, actions_);
  queue_.reverted(Resource{"other"}, now_, actions_);
  queue_.released(Resource{"other"}, now_, actions_);
  EXPECT_EQ(wanted(), Words{});
  EXPECT_TRUE(grant(asking, "a", 7));
}

}  // namespace
}  // namespace fenceguard
