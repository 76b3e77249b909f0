// Lanes in front of a real state: threads, the store's answers, the mark, the timer.

#include "server/lane/lane_scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "guard/store/lane_state.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;
using std::chrono::milliseconds;
using testing::HasSubstr;
using LastStop = LaneState::LastStop;

constexpr milliseconds settle{300};
// Where something must be seen while a lane is closed: a busy machine's disk takes a part of it.
constexpr milliseconds long_settle{6'000};

// One process's lanes, on a state of their own.
class OpenLanes {
 public:
  explicit OpenLanes(const std::string& path, const StorageOptions& state = initialised()) {
    options_.state = sqlite::open_storage(path, state);
    options_.settle = settle;
    options_.is_settled = true;
    lanes_.emplace(options_, state.jump_max, 1'000);
  }
  OpenLanes(const std::string& path, milliseconds settle_time, bool is_settled = true) {
    options_.is_settled = is_settled;
    options_.state = sqlite::open_storage(path, initialised());
    start(settle_time);
  }
  [[nodiscard]] LaneScheduler* operator->() { return &*lanes_; }

  // Asks; the answer when it comes.
  [[nodiscard]] std::future<Entry> ask(Ask ask) {
    auto promise = std::make_shared<std::promise<Entry>>();
    auto future = promise->get_future();
    auto entry =
        lanes_->enter(std::move(ask), [promise](Entry late) { promise->set_value(std::move(late)); });
    if (entry) promise->set_value(*std::move(entry));
    return future;
  }
  [[nodiscard]] std::future<Entry> write(Ticket ticket, const Claim& claim) {
    return ask({ticket, Kind::write, {claim}});
  }
  // Lets a write in that need not wait for others.
  Ticket enter(const Claim& claim) {
    const Ticket ticket = lanes_->new_ticket();
    const Entry entry = write(ticket, claim).get();
    EXPECT_TRUE(std::holds_alternative<EnteredEvent>(entry)) << claim.token.value();
    return ticket;
  }
  std::optional<Fault> leave(Ticket ticket, Ending ending) {
    auto promise = std::make_shared<std::promise<LeftEvent>>();
    auto future = promise->get_future();
    auto left =
        lanes_->leave(ticket, ending, [promise](LeftEvent late) { promise->set_value(std::move(late)); });
    return left ? left->fault : future.get().fault;
  }
  // Asks until the resource is open; what stands in the way must say for how long.
  [[nodiscard]] Entry enter_when_open(const Claim& claim) {
    for (;;) {
      const Ticket ticket = lanes_->new_ticket();
      Entry entry = write(ticket, claim).get();
      const auto* failed = std::get_if<FailedEvent>(&entry);
      if (failed == nullptr || failed->fault.retry_after > options_.settle + milliseconds{1}) {
        if (failed == nullptr) leave(ticket, Ending::took_effect);
        return entry;
      }
      std::this_thread::sleep_for(failed->fault.retry_after);
    }
  }
  [[nodiscard]] FenceView revoke(const std::string& resource, const std::optional<Claim>& lease = {}) {
    return wait_for<FenceView>(
        [&](Done<FenceView> done) { (*lanes_).revoke(Resource{resource}, lease, std::move(done)); });
  }
  [[nodiscard]] Ruling advance(const Claim& claim) { return StoreGuard{(*lanes_)}.advance(claim); }
  [[nodiscard]] LaneState::LastStop last_stop() {
    return options_.state->lane_state()->last_stop(options_.upstream);
  }
  // The lanes end; the state stays open.
  void stop() { lanes_.reset(); }
  void start(milliseconds settle_time = settle) {
    options_.settle = settle_time;
    lanes_.emplace(options_, 0, 1'000);
  }

 private:
  LaneOptions options_;
  std::optional<LaneScheduler> lanes_;
};

class LanesTest : public testing::Test {
 protected:
  TempDir folder_;
  const std::string path_ = folder_.file("state.db");
};

// Waits for a condition; false if it does not come true in time.
template <class Condition>
bool becomes(Condition condition) {
  const auto last = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (!condition()) {
    if (std::chrono::steady_clock::now() > last) return false;
    std::this_thread::sleep_for(milliseconds{1});
  }
  return true;
}

Verdict verdict_of(const Entry& entry) {
  return std::get<RefusedEvent>(entry).ruling.verdict;
}

TEST_F(LanesTest, AnEqualClaimWithoutContentionIsAnsweredAtOnce) {
  OpenLanes lanes{path_};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
  const Ticket ticket = lanes->new_ticket();
  const auto entry = lanes->enter({ticket, Kind::write, {claim_of("a", 34)}}, {});
  ASSERT_TRUE(entry);
  EXPECT_EQ(std::get<EnteredEvent>(*entry).rulings.at(0).highest, 34);
  const auto left = lanes->leave(ticket, Ending::took_effect, {});
  ASSERT_TRUE(left);
  EXPECT_FALSE(left->fault);
  EXPECT_EQ(lanes->figures().lanes, 0u);
}

TEST_F(LanesTest, AHigherTokenWaitsUntilTheOlderWriteIsOver) {
  OpenLanes lanes{path_};
  const Ticket old = lanes.enter(claim_of("a", 34));
  auto waiting = lanes.write(lanes->new_ticket(), claim_of("a", 35, "b"));
  EXPECT_EQ(verdict_of(lanes.write(lanes->new_ticket(), claim_of("a", 34)).get()), Verdict::stale);
  EXPECT_EQ(waiting.wait_for(milliseconds{20}), std::future_status::timeout);
  EXPECT_TRUE(lanes->is_overtaken(Resource{"a"}, Token{34}));
  lanes.leave(old, Ending::took_effect);
  EXPECT_TRUE(std::holds_alternative<EnteredEvent>(waiting.get()));
}

TEST_F(LanesTest, UnknownOutcomeClosesTheResourceUntilItHasSettled) {
  OpenLanes lanes{path_, long_settle};
  const Ticket old = lanes.enter(claim_of("a", 34));
  auto waiting = lanes.write(lanes->new_ticket(), claim_of("a", 35, "b"));
  const auto closed_at = std::chrono::steady_clock::now();
  lanes.leave(old, Ending::unknown);
  const Entry failed = waiting.get();
  EXPECT_EQ(std::get<FailedEvent>(failed).fault.kind, FaultKind::unavailable);
  EXPECT_GT(std::get<FailedEvent>(failed).fault.retry_after, milliseconds{0});
  const Entry again = lanes.write(lanes->new_ticket(), claim_of("a", 35, "b")).get();
  EXPECT_TRUE(std::holds_alternative<FailedEvent>(again));
  const Entry opened = lanes.enter_when_open(claim_of("a", 35, "b"));
  EXPECT_TRUE(std::holds_alternative<EnteredEvent>(opened));
  EXPECT_GE(std::chrono::steady_clock::now() - closed_at, long_settle);
}

// The timer, not the next request, forgets what has settled.
TEST_F(LanesTest, ALaneThatHasSettledCostsNothing) {
  OpenLanes lanes{path_};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::unknown);
  EXPECT_EQ(lanes->figures().settle_closures, 1u);
  EXPECT_TRUE(becomes([&] { return lanes->figures().lanes == 0; }));
  EXPECT_EQ(lanes->figures().closed, 0u);
}

TEST_F(LanesTest, AnAdvanceDrainsAndARevokeWaitsForTheHoldersOwnWrite) {
  OpenLanes lanes{path_};
  const Ticket old = lanes.enter(claim_of("a", 34));
  auto advance = std::async(std::launch::async, [&] { return lanes.advance(claim_of("a", 35, "b")); });
  EXPECT_TRUE(becomes([&] { return lanes->figures().waiting == 1; }));
  lanes.leave(old, Ending::took_effect);
  const Ruling ruling = advance.get();
  EXPECT_EQ(ruling.verdict, Verdict::admitted);
  ASSERT_TRUE(ruling.fence);
  EXPECT_EQ(ruling.fence->token, Token{35});

  const Ticket own = lanes.enter(claim_of("a", 35, "b"));
  auto revoke = std::async(std::launch::async, [&] { return lanes.revoke("a"); });
  EXPECT_TRUE(becomes([&] { return lanes->figures().waiting == 1; }));
  lanes.leave(own, Ending::took_effect);
  EXPECT_TRUE(revoke.get().record->closed);
  EXPECT_EQ(verdict_of(lanes.write(lanes->new_ticket(), claim_of("a", 35, "b")).get()), Verdict::stale);
  EXPECT_TRUE(lanes.revoke("a", claim_of("a", 40, "c")).record->closed) << "a lease that has not advanced";
  EXPECT_EQ(lanes.advance(claim_of("a", 40, "c")).verdict, Verdict::stale);
}

TEST_F(LanesTest, TheFencesBehindTheLanesAreCompactedButNotSetByHand) {
  OpenLanes lanes{path_};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
  lanes.leave(lanes.enter(claim_of("b", 40)), Ending::took_effect);
  const auto compaction =
      wait_for<Compaction>([&](Done<Compaction> done) { lanes->compact(Token{40}, std::move(done)); });
  EXPECT_EQ(compaction.dropped, 1);
  EXPECT_EQ(verdict_of(lanes.write(lanes->new_ticket(), claim_of("a", 34)).get()), Verdict::stale);
  try {
    (void)wait_for<FenceView>([&](Done<FenceView> done) {
      lanes->rebase({Resource{"a"}, Token{7}, "tester"}, std::move(done));
    });
    FAIL() << "a running guard's fence was set by hand";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), HasSubstr("fenceguard fence rebase --storage sqlite:STATE"));
  }
  EXPECT_EQ(lanes->status().state, StoreState::ready);
}

TEST_F(LanesTest, AFloorThatWasRaisedCountsForWhoWaits) {
  OpenLanes lanes{path_};
  const Ticket old = lanes.enter(claim_of("a", 33));
  auto waiting = lanes.write(lanes->new_ticket(), claim_of("a", 34));
  EXPECT_TRUE(becomes([&] { return lanes->is_overtaken(Resource{"a"}, Token{33}); }));
  EXPECT_EQ(wait_for<std::int64_t>([&](Done<std::int64_t> done) { lanes->init(100, done); }), 100);
  lanes.leave(old, Ending::took_effect);
  EXPECT_EQ(verdict_of(waiting.get()), Verdict::stale);
}

TEST_F(LanesTest, ASequenceIsDurableWhenItsClientMayBeTold) {
  {
    OpenLanes lanes{path_};
    EXPECT_FALSE(lanes.leave(lanes.enter(claim_of("a", 34).with(Sequence{7})), Ending::took_effect));
  }
  OpenLanes lanes{path_};
  const Entry twice = lanes.write(lanes->new_ticket(), claim_of("a", 34).with(Sequence{7})).get();
  EXPECT_EQ(verdict_of(twice), Verdict::duplicate);
}

TEST_F(LanesTest, WhoGoesAwayIsNotAnswered) {
  OpenLanes lanes{path_};
  const Ticket old = lanes.enter(claim_of("a", 34));
  std::atomic<bool> is_answered = false;
  const Ticket gone = lanes->new_ticket();
  EXPECT_FALSE(
      lanes->enter({gone, Kind::write, {claim_of("a", 35)}}, [&](const Entry&) { is_answered = true; }));
  EXPECT_TRUE(lanes->withdraw(gone));
  lanes.leave(old, Ending::took_effect);
  lanes.leave(lanes.enter(claim_of("a", 36)), Ending::took_effect);
  EXPECT_FALSE(is_answered);
  EXPECT_FALSE(lanes->withdraw(old));
}

TEST_F(LanesTest, TheMarkIsSetBeforeTheFirstWriteAndTakenAwayWhenAllIsOver) {
  OpenLanes lanes{path_};
  EXPECT_EQ(lanes.advance(claim_of("a", 34)).verdict, Verdict::admitted);
  EXPECT_EQ(lanes.last_stop(), LastStop::none) << "what forwards nothing leaves nothing open";
  const Ticket write = lanes.enter(claim_of("a", 34));
  EXPECT_EQ(lanes.last_stop(), LastStop::unclean);
  lanes.leave(write, Ending::took_effect);
  EXPECT_EQ(lanes.last_stop(), LastStop::unclean) << "once for a process";
  lanes.stop();
  EXPECT_EQ(lanes.last_stop(), LastStop::clean);
  lanes.start();
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
}

TEST_F(LanesTest, AStopThatLeftSomethingUnknownClosesEverythingAtTheNextStart) {
  OpenLanes lanes{path_, long_settle};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::unknown);
  lanes.stop();
  EXPECT_EQ(lanes.last_stop(), LastStop::unclean);
  const auto started = std::chrono::steady_clock::now();
  lanes.start(long_settle);
  const Entry other = lanes.write(lanes->new_ticket(), claim_of("b", 7)).get();
  EXPECT_EQ(std::get<FailedEvent>(other).fault.kind, FaultKind::unavailable);
  lanes.stop();
  EXPECT_EQ(lanes.last_stop(), LastStop::unclean) << "a stop while everything is closed";
  lanes.start(long_settle);
  EXPECT_TRUE(std::holds_alternative<EnteredEvent>(lanes.enter_when_open(claim_of("b", 7))));
  EXPECT_GE(std::chrono::steady_clock::now() - started, long_settle);
}

// What a command beside a stopped guard knows nothing of: how long the upstream takes.
TEST_F(LanesTest, WhoForwardsNothingLeavesTheMarkOfAnother) {
  OpenLanes lanes{path_, long_settle};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::unknown);
  lanes.stop();
  lanes.start(milliseconds{0});
  std::optional<Verdict> verdict;
  EXPECT_TRUE(becomes([&] {
    try {
      verdict = lanes.advance(claim_of("a", 35, "b")).verdict;
    } catch (const Unavailable&) {
    }
    return verdict.has_value();
  }));
  EXPECT_EQ(verdict, Verdict::admitted);
  lanes.stop();
  EXPECT_EQ(lanes.last_stop(), LastStop::unclean);

  lanes.start(long_settle);
  EXPECT_TRUE(std::holds_alternative<EnteredEvent>(lanes.enter_when_open(claim_of("a", 35, "b"))));
  lanes.stop();
  EXPECT_EQ(lanes.last_stop(), LastStop::clean) << "it waited for its own settle time, and wrote";
}

// Which guard was there before, and with which state, a new one cannot know.
TEST_F(LanesTest, ANewStateIsClosedUnlessTheOperatorSaysThatItIsSettled) {
  const auto started = std::chrono::steady_clock::now();
  OpenLanes lanes{path_, long_settle, false};
  const Entry early = lanes.write(lanes->new_ticket(), claim_of("a", 34)).get();
  EXPECT_THAT(std::get<FailedEvent>(early).fault.message, HasSubstr("nothing shows that this state"));
  EXPECT_TRUE(std::holds_alternative<EnteredEvent>(lanes.enter_when_open(claim_of("a", 34))));
  EXPECT_GE(std::chrono::steady_clock::now() - started, long_settle);
  lanes.stop();
  EXPECT_EQ(lanes.last_stop(), LastStop::clean);
  lanes.start(long_settle);
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
}

// It may have been restored under a guard that is about to serve it.
TEST_F(LanesTest, InitClosesWhatWasServedBefore) {
  OpenLanes lanes{path_, long_settle};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
  lanes.stop();
  lanes.start(long_settle);
  EXPECT_EQ(wait_for<std::int64_t>([&](Done<std::int64_t> done) { lanes->init(40, std::move(done)); }), 40);
  const Entry early = lanes.write(lanes->new_ticket(), claim_of("a", 41)).get();
  EXPECT_TRUE(std::holds_alternative<FailedEvent>(early));
  lanes.stop();
  EXPECT_EQ(lanes.last_stop(), LastStop::unclean) << "it was asked to forward";
}

TEST_F(LanesTest, AStateThatIsNotInitialisedAdmitsNothingAndNamesTheCommand) {
  OpenLanes lanes{path_, StorageOptions{}};
  const auto command = "fenceguard fence init --storage sqlite:" + path_;
  for (const Kind kind : {Kind::write, Kind::read, Kind::advance}) {
    const Entry entry = lanes.ask({lanes->new_ticket(), kind, {claim_of("a", 34)}}).get();
    EXPECT_EQ(std::get<FailedEvent>(entry).fault.kind, FaultKind::unavailable);
    EXPECT_THAT(std::get<FailedEvent>(entry).fault.message, HasSubstr(command));
  }
  EXPECT_EQ(lanes.last_stop(), LastStop::none);
  EXPECT_EQ(wait_for<std::int64_t>([&](Done<std::int64_t> done) { lanes->init(30, std::move(done)); }), 30);
  EXPECT_EQ(verdict_of(lanes.write(lanes->new_ticket(), claim_of("a", 30)).get()), Verdict::stale);
  lanes.leave(lanes.enter(claim_of("a", 31)), Ending::took_effect);
}

TEST_F(LanesTest, AnAbsurdTokenIsImplausibleAndMovesNothing) {
  StorageOptions options = initialised();
  options.jump_max = 1'000;
  OpenLanes lanes{path_, options};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
  const Entry absurd = lanes.write(lanes->new_ticket(), claim_of("a", 2'000'000)).get();
  EXPECT_EQ(std::get<FailedEvent>(absurd).fault.kind, FaultKind::implausible);
  lanes.leave(lanes.enter(claim_of("a", 35)), Ending::took_effect);
}

TEST_F(LanesTest, OfAPairWithAnAbsurdTokenNeitherFenceMoves) {
  StorageOptions options = initialised();
  options.jump_max = 1'000;
  OpenLanes lanes{path_, options};
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
  for (const auto& [plausible, absurd] : {std::pair{"a", "b"}, std::pair{"c", "a"}}) {
    const Claim far = claim_of(absurd, std::int64_t{1} << 50);
    const Entry entry = lanes.ask({lanes->new_ticket(), Kind::write, {claim_of(plausible, 35), far}}).get();
    EXPECT_EQ(std::get<FailedEvent>(entry).fault.kind, FaultKind::implausible);
  }
  lanes.leave(lanes.enter(claim_of("a", 34)), Ending::took_effect);
  lanes.leave(lanes.enter(claim_of("c", 1)), Ending::took_effect);
}

TEST_F(LanesTest, AStorageThatCannotKeepTheStateIsRefused) {
  EXPECT_THROW((LaneScheduler{LaneOptions{}, 0, 10}), InvalidInput);
  LaneOptions options;
  { const OpenStorage made{path_}; }
  StorageOptions inspecting;
  inspecting.mode = StorageOptions::Mode::inspect;
  options.state = sqlite::open_storage(path_, inspecting);
  EXPECT_THROW((LaneScheduler{options, 0, 10}), InvalidInput);
}

// Threads write with rising tokens, and forget at times what became of a write; at no moment are writes of
// two tokens under way on one resource.
TEST_F(LanesTest, UnderManyThreadsNoTwoTokensAreUnderWayOnOneResource) {
  OpenLanes lanes{path_};
  struct UnderWay {
    std::mutex mutex;
    std::multiset<std::int64_t> tokens;
    std::int64_t highest = 0;
  };
  std::array<UnderWay, 2> under_way;
  std::atomic<std::int64_t> next{1};
  std::atomic<int> entered{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937 random{thread};
        for (int i = 0; i < scaled(400); ++i) {
          const std::size_t which = random() % 2;
          const std::int64_t token = random() % 4 == 0 ? next++ : next.load();
          const Ticket ticket = lanes->new_ticket();
          auto future = lanes.write(ticket, claim_of("r/" + std::to_string(which), token));
          if (random() % 8 == 0 && lanes->withdraw(ticket)) continue;
          if (!std::holds_alternative<EnteredEvent>(future.get())) continue;
          ++entered;
          UnderWay& there = under_way[which];
          {
            const std::scoped_lock lock{there.mutex};
            there.tokens.insert(token);
            EXPECT_EQ(*there.tokens.begin(), *there.tokens.rbegin());
            EXPECT_GE(token, there.highest);
            there.highest = token;
          }
          std::this_thread::yield();
          {
            const std::scoped_lock lock{there.mutex};
            there.tokens.erase(there.tokens.find(token));
          }
          lanes.leave(ticket, random() % 2 == 0 ? Ending::took_effect : Ending::refused);
        }
      });
    }
  }
  EXPECT_GT(entered, 0);
  EXPECT_EQ(lanes->figures().in_flight, 0u);
  // Who went away during its raise is gone when the store has answered.
  EXPECT_TRUE(becomes([&] { return lanes->figures().waiting == 0; }));
}

}  // namespace
}  // namespace fenceguard::test
