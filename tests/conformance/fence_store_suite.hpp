#pragma once

// What every fence store must pass, whatever keeps its fences: that each call is answered exactly once, on a
// thread of the store's own, never before it has returned and never by the thread that ends the store; and
// what a change, a refusal and a look at it answer. An adapter runs it in some 30 lines: a FenceSpace, and
// INSTANTIATE_TEST_SUITE_P with what makes one.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "guard/storage.hpp"
#include "tests/conformance/fence_calls.hpp"

namespace fenceguard::test {

// A namespace of its own, for one test.
class FenceSpace {
 public:
  virtual ~FenceSpace() = default;
  [[nodiscard]] virtual std::unique_ptr<Storage> open(const StorageOptions& options) = 0;
  // Whether it can be looked at (StorageOptions::Mode::inspect).
  [[nodiscard]] virtual bool can_be_inspected() const { return true; }
  // Whether floor, listing and compaction are there, and a fence can be set by hand beside a guard.
  [[nodiscard]] virtual bool can_be_rebased() const { return true; }
};

struct FenceKind {
  std::string name;
  std::function<std::unique_ptr<FenceSpace>()> make;
};

inline std::string fence_kind_name(const testing::TestParamInfo<FenceKind>& info) {
  return info.param.name;
}

// Counts the answers to one call, and on whose thread they came.
class Answers {
 public:
  template <class T>
  [[nodiscard]] Done<T> expect() {
    return [this, asker = std::this_thread::get_id(),
            answered = std::make_shared<std::atomic<int>>(0)](const Outcome<T>& outcome) {
      if (++*answered > 1) ++repeated_;
      if (std::this_thread::get_id() == asker) ++inline_;
      if (!outcome.ok() && outcome.fault().kind == FaultKind::unavailable) ++unavailable_;
      const std::scoped_lock lock{mutex_};
      ++count_;
      changed_.notify_all();
    };
  }

  void wait_for(int count) {
    std::unique_lock lock{mutex_};
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds{60}, [&] { return count_ >= count; }))
        << count_ << " of " << count;
  }

  [[nodiscard]] int count() {
    const std::scoped_lock lock{mutex_};
    return count_;
  }
  [[nodiscard]] int unavailable() const { return unavailable_; }
  // Given before the call had returned, or a second time.
  [[nodiscard]] int wrong() const { return inline_ + repeated_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  std::atomic<int> inline_{0};
  std::atomic<int> repeated_{0};
  std::atomic<int> unavailable_{0};
};

class FenceStoreSuite : public testing::TestWithParam<FenceKind> {
 protected:
  // Ready to be used.
  [[nodiscard]] std::unique_ptr<Storage> open() {
    auto storage = space_->open({.initialise = true});
    if (storage->fences().status().state != StoreState::ready) (void)init(*storage, 0);
    return storage;
  }

  static Claim claim(const std::string& resource, std::int64_t token, const std::string& holder = "h") {
    return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
  }

  static constexpr int calls_of_all = 10;
  // Every call there is, and an advance of each kind of answer.
  static void call_all(FenceStore& fences, Answers& answers) {
    fences.advance(claim("r", 5), answers.expect<Ruling>());
    fences.advance(claim("r", 5), answers.expect<Ruling>());
    fences.advance(claim("r", 5, "other"), answers.expect<Ruling>());
    fences.advance(claim("r", 4), answers.expect<Ruling>());
    fences.show(Resource{"r"}, answers.expect<FenceView>());
    fences.list({}, answers.expect<FencePage>());
    fences.revoke(Resource{"r"}, std::nullopt, answers.expect<FenceView>());
    fences.rebase({Resource{"s"}, Token{7}, "ann"}, answers.expect<FenceView>());
    fences.compact(Token{1}, answers.expect<Compaction>());
    fences.init(1, answers.expect<std::int64_t>());
  }

  std::unique_ptr<FenceSpace> space_ = GetParam().make();
};

TEST_P(FenceStoreSuite, EveryCallIsAnsweredOnceAndAfterItReturned) {
  const auto storage = open();
  Answers answers;
  for (int round = 1; round <= 3; ++round) {
    call_all(storage->fences(), answers);
    answers.wait_for(round * calls_of_all);
  }
  EXPECT_EQ(answers.count(), 3 * calls_of_all);
  EXPECT_EQ(answers.wrong(), 0);
}

// A caller may hold what his answer needs.
TEST_P(FenceStoreSuite, AnAnswerMayWaitForWhatTheCallerHoldsAndMayCallAgain) {
  const auto storage = open();
  std::mutex held;
  std::atomic<int> answered{0};
  {
    const std::scoped_lock lock{held};
    for (const auto token : {5, 5, 4}) {
      storage->fences().advance(claim("r", token), [&](const Outcome<Ruling>&) {
        const std::scoped_lock waited{held};
        storage->fences().advance(claim("r", 3), [&](const Outcome<Ruling>&) { ++answered; });
      });
    }
  }
  wait_until([&] { return answered == 3; });
}

TEST_P(FenceStoreSuite, WhatIsOpenAtTheEndIsAnsweredOnceAndNotByWhoEndsIt) {
  for (int i = 0; i < 5; ++i) {
    auto storage = open();
    std::array<Answers, 3> answers;
    std::vector<std::jthread> callers;
    for (auto& own : answers)
      callers.emplace_back([&fences = storage->fences(), &own] { call_all(fences, own); });
    callers.clear();
    Answers last;
    call_all(storage->fences(), last);
    storage.reset();
    for (auto& own : answers) {
      EXPECT_EQ(own.count(), calls_of_all);
      EXPECT_EQ(own.wrong(), 0);
    }
    EXPECT_EQ(last.count(), calls_of_all);
    EXPECT_EQ(last.wrong(), 0) << "this thread called, and ended the store";
  }
}

// Each answer calls again, also while the store ends, until one is refused.
TEST_P(FenceStoreSuite, AnAnswerThatCallsAgainWhileTheStoreEndsIsRefused) {
  struct Chain {
    FenceStore& fences;
    std::atomic<int> answered{0};
    std::atomic<bool> is_refused{false};
    void call() {
      fences.show(Resource{"r"}, [this](const Outcome<FenceView>& outcome) {
        ++answered;
        if (outcome.ok()) return call();
        EXPECT_EQ(outcome.fault().kind, FaultKind::unavailable);
        is_refused = true;
      });
    }
  };
  for (int i = 0; i < 5; ++i) {
    auto storage = open();
    Chain chain{storage->fences()};
    chain.call();
    wait_until([&] { return chain.answered > 2; });
    storage.reset();
    EXPECT_TRUE(chain.is_refused);
  }
}

TEST_P(FenceStoreSuite, WhatIsOnlyLookedAtRefusesEveryChangeInTheSameWay) {
  if (!space_->can_be_inspected()) GTEST_SKIP() << "its fences are looked at through the guard alone";
  {
    const auto guard = open();
    ASSERT_EQ(advance(*guard, claim("r", 5)).verdict, Verdict::admitted);
  }
  const auto storage = space_->open({.mode = StorageOptions::Mode::inspect});
  Answers answers;
  call_all(storage->fences(), answers);
  answers.wait_for(calls_of_all);
  EXPECT_EQ(answers.wrong(), 0);
  EXPECT_EQ(answers.unavailable(), calls_of_all - 2) << "all but show and list";
  EXPECT_EQ(show(*storage, "r").highest(), 5);
}

TEST_P(FenceStoreSuite, AChangeIsSeenByTheNextLook) {
  const auto storage = open();
  const auto raised = advance(*storage, claim("a/1", 5));
  EXPECT_EQ(raised.verdict, Verdict::admitted);
  EXPECT_EQ(raised.highest, 5);
  EXPECT_EQ(advance(*storage, claim("a/1", 5, "other")).verdict, Verdict::conflict);
  EXPECT_EQ(advance(*storage, claim("a/1", 4)).highest, 5);
  EXPECT_EQ(advance(*storage, claim("b", 6)).verdict, Verdict::admitted);
  EXPECT_EQ(show(*storage, "a/1").highest(), 5);
  EXPECT_EQ(list(*storage, {.prefix = "a/", .after = {}, .limit = 10}).entries.size(), 1u);
  EXPECT_TRUE(revoke(*storage, "a/1").record->closed);
  EXPECT_EQ(advance(*storage, claim("a/1", 5)).verdict, Verdict::stale);
  if (space_->can_be_rebased()) {
    EXPECT_EQ(rebase(*storage, "b", 9).record->token, Token{9});
    EXPECT_EQ(advance(*storage, claim("b", 9)).verdict, Verdict::stale) << "of nobody, and closed";
    EXPECT_EQ(advance(*storage, claim("b", 10)).verdict, Verdict::admitted);
  }
  const auto compaction = compact(*storage, 6);
  EXPECT_EQ(compaction.dropped, 1);
  EXPECT_EQ(compaction.floor, 5);
  EXPECT_FALSE(show(*storage, "a/1").record);
  EXPECT_EQ(advance(*storage, claim("a/1", 5)).verdict, Verdict::stale);
  EXPECT_EQ(init(*storage, 20), 20);
  EXPECT_EQ(init(*storage, 3), 20);
  EXPECT_EQ(advance(*storage, claim("new", 20)).verdict, Verdict::stale);
}

}  // namespace fenceguard::test
