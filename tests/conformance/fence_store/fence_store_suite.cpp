#include "tests/conformance/fence_store/fence_store_suite.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fenceguard::test {
namespace {

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

constexpr int calls_of_all = 10;

// Every call there is, and an advance of each kind of answer.
void call_all(FenceStore& fences, Answers& answers) {
  const auto claim = [](std::int64_t token, const std::string& holder = "h") {
    return Claim{Resource{"r"}, Token{token}, Holder{holder}, std::nullopt};
  };
  fences.advance(claim(5), answers.expect<Ruling>());
  fences.advance(claim(5), answers.expect<Ruling>());
  fences.advance(claim(5, "other"), answers.expect<Ruling>());
  fences.advance(claim(4), answers.expect<Ruling>());
  fences.show(Resource{"r"}, answers.expect<FenceView>());
  fences.list({}, answers.expect<FencePage>());
  fences.revoke(Resource{"r"}, std::nullopt, answers.expect<FenceView>());
  fences.rebase({Resource{"s"}, Token{7}, "ann"}, answers.expect<FenceView>());
  fences.compact(Token{1}, answers.expect<Compaction>());
  fences.init(1, answers.expect<std::int64_t>());
}

}  // namespace

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

TEST_P(FenceStoreSuite, ChangesOfOneResourceAreMadeAndAnsweredInTheOrderOfTheirCalls) {
  const auto storage = open();
  constexpr std::int64_t count = 100;
  std::mutex mutex;
  std::vector<std::int64_t> admitted;
  std::atomic<int> answered{0};
  for (std::int64_t token = 1; token <= count; ++token) {
    storage->fences().advance(claim("a", token), [&, token](const Outcome<Ruling>& outcome) {
      const std::scoped_lock lock{mutex};
      if (outcome.ok() && outcome.value().verdict == Verdict::admitted) admitted.push_back(token);
      ++answered;
    });
  }
  wait_until([&] { return answered == count; });
  EXPECT_EQ(admitted.size(), count);
  EXPECT_TRUE(std::ranges::is_sorted(admitted));
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
  EXPECT_FALSE(show(*storage, "s").record);
  EXPECT_EQ(storage->own_source(), nullptr);
  EXPECT_THAT([&] { (void)advance(*storage, claim("r", 6)); },
              testing::ThrowsMessage<Unavailable>(testing::HasSubstr("only looked at here")));
}

TEST_P(FenceStoreSuite, AnAdvanceTellsVerdictHighestAndWhetherItRaisedTheFence) {
  const auto storage = open();
  const auto first = advance(*storage, claim("a", 5));
  EXPECT_EQ(first.verdict, Verdict::admitted);
  EXPECT_EQ(first.highest, 5);
  EXPECT_EQ(first.changed, space_->tells_changes());
  EXPECT_FALSE(advance(*storage, claim("a", 5)).changed);
  EXPECT_EQ(advance(*storage, claim("a", 4)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("a", 5, "other")).verdict, Verdict::conflict);
  EXPECT_EQ(advance(*storage, claim("a", 6, "other")).changed, space_->tells_changes());
}

TEST_P(FenceStoreSuite, AnAdvanceTellsWhomItOvertook) {
  if (!space_->tells_overtaken()) return;
  const auto storage = open();
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(advance(*storage, claim("a", 5, "x")).overtaken);
  const auto other = advance(*storage, claim("a", 7, "y")).overtaken;
  ASSERT_TRUE(other);
  EXPECT_EQ(other->token, Token{5});
  EXPECT_NE(other->holder, Holder{"y"});
  const auto own = advance(*storage, claim("a", 8, "y")).overtaken;
  ASSERT_TRUE(own);
  EXPECT_EQ(own->token, Token{7});
  EXPECT_EQ(own->holder, Holder{"y"});
  EXPECT_FALSE(advance(*storage, claim("a", 7, "y")).overtaken) << "it was refused";
}

TEST_P(FenceStoreSuite, AnAdvanceUsesUpNoSequence) {
  const auto storage = open();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(advance(*storage, claim("a", 5).with(Sequence{9})).verdict, Verdict::admitted);
  EXPECT_FALSE(show(*storage, "a").record->sequence);
}

TEST_P(FenceStoreSuite, ARevokedFenceIsClosedToItsTokenAndOpenToTheNext) {
  const auto storage = open();
  EXPECT_FALSE(revoke(*storage, "a").record) << "nothing was there to be closed";
  (void)advance(*storage, claim("a", 5));
  EXPECT_TRUE(revoke(*storage, "a").record->closed);
  const auto ruling = advance(*storage, claim("a", 5));
  EXPECT_EQ(ruling.verdict, Verdict::stale);
  EXPECT_TRUE(ruling.fence && ruling.fence->closed);
  EXPECT_EQ(advance(*storage, claim("a", 6)).verdict, Verdict::admitted);
  EXPECT_FALSE(show(*storage, "a").record->closed);
}

TEST_P(FenceStoreSuite, ARevokeCutsOffALeaseThatHasNotAdvancedYet) {
  const auto storage = open();
  (void)advance(*storage, claim("a", 5));
  EXPECT_EQ(revoke(*storage, "a", claim("a", 8, "new")).record,
            (Fence{Token{8}, Holder{"new"}, std::nullopt, true}));
  EXPECT_EQ(advance(*storage, claim("a", 8, "new")).verdict, Verdict::stale);
  EXPECT_EQ(revoke(*storage, "a", claim("a", 6)).record->token, Token{8}) << "a lease older than the fence";
  EXPECT_EQ(revoke(*storage, "b", claim("b", 9)).record, (Fence{Token{9}, Holder{"h"}, std::nullopt, true}));
}

TEST_P(FenceStoreSuite, ATokenBeyondTheBoundIsImplausibleAndMovesNothing) {
  const auto storage = open(100);
  (void)advance(*storage, claim("a", 50));
  EXPECT_THROW((void)advance(*storage, claim("b", 151)), Implausible);
  EXPECT_FALSE(show(*storage, "b").record);
  EXPECT_EQ(advance(*storage, claim("b", 150)).verdict, Verdict::admitted);
}

TEST_P(FenceStoreSuite, AListIsSortedBytewiseAndComesInPages) {
  const auto storage = open();
  for (const auto* name : {"a/1", "a/10", "a/2", "b", "ä", "A"}) (void)advance(*storage, claim(name, 5));
  const auto page = [&](const FenceListing& listing) {
    std::vector<std::string> names;
    const auto found = list(*storage, listing);
    for (const auto& entry : found.entries) names.push_back(entry.resource.name());
    return std::pair{names, found.has_more};
  };
  using Page = std::pair<std::vector<std::string>, bool>;
  EXPECT_EQ(page({}), (Page{{"A", "a/1", "a/10", "a/2", "b", "ä"}, false}));
  EXPECT_EQ(page({.prefix = "a/", .after = "", .limit = 2}), (Page{{"a/1", "a/10"}, true}));
  EXPECT_EQ(page({.prefix = "a/", .after = "a/10", .limit = 2}), (Page{{"a/2"}, false}));
  EXPECT_EQ(page({.prefix = "a/", .after = "A", .limit = 1}), (Page{{"a/1"}, true}));
  EXPECT_EQ(page({.prefix = "a/", .after = "b", .limit = 2}), (Page{{}, false}));
  EXPECT_EQ(page({.prefix = "zz", .after = "", .limit = 2}), (Page{{}, false}));
}

TEST_P(FenceStoreSuite, StatusFollowsTheFences) {
  const auto storage = open();
  const auto& fences = storage->fences();
  EXPECT_EQ(fences.status().state, StoreState::ready);
  (void)advance(*storage, claim("a", 7));
  (void)advance(*storage, claim("b", 6));
  EXPECT_EQ(fences.status().highest, 7) << "at once";
  wait_until([&] { return fences.status().resources == 2; });
  (void)init(*storage, 9);
  EXPECT_EQ(fences.status().floor, 9) << "at once";
  EXPECT_EQ(fences.status().highest, 9);
  EXPECT_EQ(fences.status().reason, "");
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
