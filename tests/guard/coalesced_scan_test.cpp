#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "guard/error.hpp"
#include "guard/support/coalesced_scan.hpp"

namespace fenceguard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SharedLookTest : public testing::Test {
 protected:
  // A look that takes a second.
  [[nodiscard]] CoalescedScan::Look look() {
    return [this] {
      now_ += seconds{1};
      return std::int64_t{++looks_};
    };
  }

  CoalescedScan::Time now_{seconds{1'000}};
  int looks_ = 0;
  CoalescedScan shared_{[this] { return now_; }};
};

TEST_F(SharedLookTest, ALookAnswersWhoeverAskedNoLaterThanItBegan) {
  const auto asked = shared_.now();
  EXPECT_EQ(shared_.since(asked, look()).number, 1);
  EXPECT_EQ(shared_.since(asked, look()).number, 1);
  EXPECT_EQ(shared_.since(asked - seconds{5}, look()).number, 1);
  EXPECT_EQ(shared_.since(asked + milliseconds{1}, look()).number, 2);
}

TEST_F(SharedLookTest, HoweverOftenOneAsksLooksTakeATenthOfTheTime) {
  const auto start = now_;
  for (int i = 0; i < 10'000; ++i) {
    const auto asked = shared_.now();
    const auto found = shared_.since(asked, look());
    EXPECT_EQ(found.number, looks_) << "the last one";
    now_ += milliseconds{10};
  }
  EXPECT_GE(looks_, (now_ - start) / seconds{10});
  EXPECT_LE(looks_, (now_ - start + seconds{30}) / seconds{10});
}

TEST_F(SharedLookTest, AFaultIsToldAndTheNextCallerLooksAnew) {
  const auto asked = shared_.now();
  EXPECT_THROW((void)shared_.since(asked, []() -> std::int64_t { throw Unavailable("cut"); }), Unavailable);
  EXPECT_EQ(shared_.since(asked, look()).number, 1);
}

// What it would have found may be what the caller needs: an older number is no answer then.
TEST_F(SharedLookTest, AFaultThatCostTooMuchIsToldAgainUntilItIsPaid) {
  EXPECT_EQ(shared_.since(shared_.now(), look()).number, 1);
  now_ += seconds{100};
  const auto cut = [this]() -> std::int64_t {
    now_ += seconds{5};
    throw Unavailable("cut");
  };
  EXPECT_THROW((void)shared_.since(shared_.now(), cut), Unavailable);
  EXPECT_THROW((void)shared_.since(shared_.now(), look()), Unavailable);
  EXPECT_EQ(looks_, 1);
  now_ += seconds{50};
  EXPECT_EQ(shared_.since(shared_.now(), look()).number, 2);
}

TEST(SharedLookThreads, WhoeverTakesAnOlderOneMeanwhileDoesNotWait) {
  CoalescedScan shared;
  const auto start = shared.now();
  EXPECT_EQ(shared.since(start, [] { return std::int64_t{1}; }).number, 1);
  std::atomic<bool> has_begun{false}, may_end{false};
  const auto slow = [&]() -> std::int64_t {
    has_begun = true;
    while (!may_end) std::this_thread::yield();
    return 2;
  };
  std::jthread other{[&] { EXPECT_EQ(shared.since(shared.now(), slow).number, 2); }};
  while (!has_begun) std::this_thread::yield();
  EXPECT_EQ(shared.since(shared.now(), slow, start).number, 1);
  may_end = true;
}

TEST(SharedLookThreads, CallersThatComeMeanwhileShareOneFurtherLook) {
  CoalescedScan shared;
  std::atomic<int> looks{0}, asked{0};
  std::atomic<bool> may_end{false};
  const auto look = [&]() -> std::int64_t {
    const int number = ++looks;
    while (!may_end) std::this_thread::yield();
    return number;
  };
  std::vector<std::jthread> callers;
  callers.emplace_back([&] { EXPECT_EQ(shared.since(shared.now(), look).number, 1); });
  while (looks == 0) std::this_thread::yield();
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      const auto since = shared.now();
      ++asked;
      EXPECT_EQ(shared.since(since, look).number, 2);
    });
  }
  while (asked < 8) std::this_thread::yield();
  may_end = true;
  callers.clear();
  EXPECT_EQ(looks, 2);
}

}  // namespace
}  // namespace fenceguard
