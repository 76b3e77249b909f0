#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <optional>
#include <set>

#include "tests/process/child_process.hpp"
#include "tests/redis/source/source.hpp"

namespace fenceguard::test {
namespace {

const std::string channel = "fenceguard:released:{accounts/42}";

std::int64_t listeners(RedisServer& server) {
  return server.call({"PUBSUB", "NUMSUB", channel}).elements.at(1).integer;
}

std::int64_t token_in(const std::optional<std::string>& line) {
  if (!line || !line->starts_with("token "))
    throw std::runtime_error{"the child said " + line.value_or("nothing")};
  return std::stoll(line->substr(6));
}

// Threads that each take the lock once and release it.
std::vector<std::jthread> start_waiters(TokenSource& source, int count, std::atomic<int>& served,
                                        Ms wait = long_wait) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&source, &served, wait] {
      const auto grant = source.wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = wait});
      if (grant && source.release(grant->claim) == Release::released) ++served;
    });
  }
  return threads;
}

class Waiting : public testing::TestWithParam<std::string> {
 protected:
  RedisServer server_;
  const std::string url_ = server_.url("/0" + GetParam());
  const std::unique_ptr<TokenSource> here_ = open(url_);
};

// An ask that is under way when the server dies may have been done, which is the caller's to judge: another
// try then.
TEST_P(Waiting, AWaitOutlastsARestartOfTheServer) {
  const auto there = open(url_);
  std::optional<Grant> second;
  for (int tries = 0; tries < 10 && !second; ++tries) {
    const auto first = take(*here_);
    auto waiting = std::async(std::launch::async, [&] {
      return there->wait_acquire(resource, Holder{"second"}, {.ttl = long_ttl, .wait = long_wait});
    });
    wait_until([&] { return listeners(server_) == 1; });
    server_.kill();
    std::this_thread::sleep_for(Ms{500});
    server_.start();
    try {
      second = waiting.get();
      ASSERT_TRUE(second);
      EXPECT_GT(second->claim.token, first.claim.token);
    } catch (const OutcomeUnknown&) {
      wait_until([&] { return there->end(resource) == Release::not_held; });
    }
  }
  EXPECT_TRUE(second);
}

// Many wait in one process: while nothing happens the server is asked nothing, and a hand-over costs it the
// release and one attempt, however many wait.
TEST_P(Waiting, ManyWaitersCostTheServerTheSameAsOne) {
  constexpr int waiters = 200;
  const auto grant = take(*here_);
  std::atomic<int> served{0};
  const auto source = open(url_);
  auto threads = start_waiters(*source, waiters, served);
  wait_until([&] { return scripts_run(server_) > waiters && listeners(server_) == 1; });
  // Until the last of them has asked and all wait, the count moves; if any went on asking, it always would.
  wait_until([&] {
    const auto count = scripts_run(server_);
    std::this_thread::sleep_for(Ms{300});
    return scripts_run(server_) - count <= 3;
  });
  const auto before = scripts_run(server_);
  here_->release(grant.claim);
  threads.clear();
  EXPECT_EQ(served, waiters);
  // The release and the attempt of each; the rest is looks for what may have been missed.
  EXPECT_LE(scripts_run(server_) - before, 2 * waiters + waiters / 4 + 10);
}

TEST_P(Waiting, AHandOverCostsEachProcessOneAttempt) {
  constexpr int processes = 3;
  constexpr int threads = 30;
  const auto grant = take(*here_);
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int i = 0; i < processes; ++i) {
    children.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{url_, resource.name(), "turns", std::to_string(threads)}));
  }
  wait_until([&] { return scripts_run(server_) > processes * threads && listeners(server_) == processes; });
  const auto before = scripts_run(server_);
  here_->release(grant.claim);
  std::set<std::int64_t> tokens;
  int served = 0;
  for (const auto& child : children) {
    for (const auto& line : child->read_rest()) {
      if (line == "asking") continue;
      tokens.insert(token_in(line));
      ++served;
    }
  }
  EXPECT_EQ(served, processes * threads);
  EXPECT_EQ(tokens.size(), static_cast<std::size_t>(served));
  EXPECT_LE(scripts_run(server_) - before, (processes + 2) * served);
}

TEST_P(Waiting, AStopAndADeadlineEndAWaitAtOnceAndLeaveNothingBehind) {
  const auto grant = take(*here_);
  const auto source = open(url_);
  std::stop_source stop;
  std::optional<Grant> stopped;
  std::jthread waiter{[&] {
    stopped = source->wait_acquire(resource, Holder::random(),
                                   {.ttl = long_ttl, .wait = Ms::max(), .stop = stop.get_token()});
  }};
  wait_until([&] { return listeners(server_) == 1; });
  stop.request_stop();
  waiter.join();
  EXPECT_FALSE(stopped);
  EXPECT_FALSE(source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = Ms{30}}));
  EXPECT_FALSE(source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = Ms{0}}));
  EXPECT_EQ(waiting_in_line(server_), 0);
  here_->release(grant.claim);
  EXPECT_FALSE(here_->show(resource));
}

// The connection that hears of releases is cut again and again while the lock goes round: nobody is
// forgotten.
TEST_P(Waiting, NoReleaseIsMissedWhenTheSubscriptionIsCut) {
  std::atomic<int> served{0};
  const auto source = open(url_);
  const auto other = open(url_);
  constexpr int waiters = 40;
  constexpr Ms limit{300'000};
  for (int round = 0; round < 2; ++round) {
    const auto grant = take(*here_);
    served = 0;
    // None of them gives up before the test does.
    auto threads = start_waiters(*source, waiters / 2, served, 2 * limit);
    auto more = start_waiters(*other, waiters / 2, served, 2 * limit);
    server_.call({"CLIENT", "KILL", "TYPE", "pubsub"});
    here_->release(grant.claim);
    const auto deadline = BootClock::now() + limit;
    while (served < waiters && BootClock::now() < deadline)
      server_.call({"CLIENT", "KILL", "TYPE", "pubsub"});
    ASSERT_EQ(served, waiters);
    threads.clear();
    more.clear();
  }
}

TEST_P(Waiting, ALeaseThatRunsOutUnheardIsHandedOverByTheClock) {
  (void)take(*here_, Holder::random(), Ms{200});
  const auto source = open(url_);
  EXPECT_TRUE(source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = long_wait}));
}

TEST_P(Waiting, LockDeletedByHandIsHandedOverBeforeItsTermEnds) {
  (void)take(*here_, Holder::random(), 60 * long_ttl);
  const auto source = open(url_);
  std::atomic<int> served{0};
  auto threads = start_waiters(*source, 3, served);
  wait_until([&] { return listeners(server_) == 1; });
  server_.call({"DEL", "fenceguard:lock:{accounts/42}"});
  threads.clear();
  EXPECT_EQ(served, 3);
}

TEST_P(Waiting, TheSameHolderEntersAtOnceWhileOthersWaitAndLeavesAsOften) {
  const Holder holder{"worker-7"};
  auto first = here_->acquire(resource, {.ttl = long_ttl, .holder = holder});
  ASSERT_TRUE(first);
  const auto source = open(url_);
  std::atomic<int> served{0};
  auto threads = start_waiters(*source, 2, served);
  wait_until([&] { return listeners(server_) == 1; });
  auto second = source->acquire(resource, {.ttl = long_ttl, .wait = long_wait, .holder = holder});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->claim(), first->claim());
  EXPECT_EQ(second->release(), Release::released);
  EXPECT_TRUE(is_held(*source));
  EXPECT_EQ(here_->show(resource)->claim, first->claim());
  EXPECT_EQ(first->release(), Release::released);
  threads.clear();
  EXPECT_EQ(served, 2);
}

TEST_P(Waiting, AnEntryWithAShortTermDoesNotCutTheLeaseOfALongOne) {
  const Holder holder{"worker-7"};
  const auto grant = take(*here_, holder);
  EXPECT_EQ(here_->renew(grant.claim, Ms{50}), Renewal::renewed);
  EXPECT_GT(here_->show(resource)->remaining, long_ttl / 2);
}

TEST_P(Waiting, AnEndIsThatOfAllEntriesAndAnotherLibrarysLockHasNone) {
  const Holder holder{"worker-7"};
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(here_->wait_acquire(resource, holder, {.ttl = long_ttl, .wait = Ms{0}}));
  const auto before = here_->show(resource)->claim;
  EXPECT_EQ(here_->end(resource), Release::released);
  EXPECT_EQ(here_->end(resource), Release::not_held);
  const auto next = take(*here_, holder);
  EXPECT_EQ(here_->release(before), Release::not_held);
  EXPECT_EQ(here_->show(resource)->claim, next.claim);
}

TEST_P(Waiting, TheEmptyHolderIsAHolderLikeAnyOther) {
  const auto grant = take(*here_, Holder{});
  EXPECT_EQ(here_->show(resource)->claim, grant.claim);
  EXPECT_EQ(here_->renew(grant.claim, long_ttl), Renewal::renewed);
  EXPECT_EQ(here_->end(resource), Release::released);
  EXPECT_FALSE(here_->show(resource));
}

TEST_P(Waiting, AskingAgainIsNoFurtherEntry) {
  const Holder holder{"worker-7"};
  const auto grant = take(*here_, holder);
  EXPECT_EQ(take(*here_, holder).claim, grant.claim);
  EXPECT_EQ(here_->release(grant.claim), Release::released);
  EXPECT_FALSE(here_->show(resource));
}

INSTANTIATE_TEST_SUITE_P(Redis, Waiting, testing::Values("", "?fair=1"),
                         [](const auto& kind) { return kind.param.empty() ? "plain" : "fair"; });

class Fair : public testing::Test {
 protected:
  std::unique_ptr<ChildProcess> start_waiter() {
    const auto before = waiting_in_line(server_);
    auto child =
        std::make_unique<ChildProcess>(std::vector<std::string>{url_, resource.name(), "hold", "60000"});
    wait_until([&] { return waiting_in_line(server_) == before + 1; });
    return child;
  }

  static void finish(ChildProcess& child) {
    child.close_input();
    EXPECT_EQ(child.read_line(), "released");
    child.wait();
  }

  RedisServer server_;
  const std::string url_ = server_.url("/0?fair=1");
  const std::unique_ptr<TokenSource> here_ = open(url_);
};

TEST_F(Fair, WaitersAreServedInFifoOrderAcrossProcesses) {
  const auto grant = take(*here_);
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int i = 0; i < 5; ++i) children.push_back(start_waiter());
  here_->release(grant.claim);
  std::int64_t last = grant.claim.token.value();
  for (auto& child : children) {
    EXPECT_EQ(child->read_line(), "asking");
    const auto token = token_in(child->read_line());
    EXPECT_EQ(token, last + 1);
    last = token;
    EXPECT_TRUE(is_held(*here_));
    finish(*child);
  }
}

TEST_F(Fair, AWaiterThatWasKilledDoesNotBlockTheLine) {
  const auto grant = take(*here_);
  auto dead = start_waiter();
  auto also_dead = start_waiter();
  auto alive = start_waiter();
  dead->signal(SIGKILL);
  also_dead->signal(SIGKILL);
  dead->wait();
  also_dead->wait();
  here_->release(grant.claim);
  EXPECT_EQ(alive->read_line(), "asking");
  EXPECT_GT(token_in(alive->read_line()), grant.claim.token.value());
  finish(*alive);
  EXPECT_EQ(waiting_in_line(server_), 0);
}

// As after a step of the server's clock: the places of those who died before it are not kept for an hour.
TEST_F(Fair, APlaceFromBeforeTheClockWentBackwardsDoesNotBlockAFreeLock) {
  (void)token_of_a_tenure(*here_);
  const auto in_an_hour =
      std::to_string(std::stoll(server_.call({"TIME"}).elements.at(0).text) + 3'600) + "000";
  server_.call({"ZADD", "fenceguard:queue:{accounts/42}", "1", "dead"});
  server_.call({"ZADD", "fenceguard:waiters:{accounts/42}", in_an_hour, "dead"});
  EXPECT_TRUE(is_held(*here_));
  EXPECT_TRUE(here_->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = long_wait}));
}

// The first in line is stopped, so that the lock stays free while it is believed to live.
TEST_F(Fair, AFreeLockIsNotTakenAheadOfItsWaiters) {
  constexpr Ms lives_at_least{2'000};
  bool was_in_time = false;
  for (int tries = 0; tries < 5 && !was_in_time; ++tries) {
    const auto grant = take(*here_);
    auto first = start_waiter();
    const auto stopped_at = BootClock::now();
    first->signal(SIGSTOP);
    here_->release(grant.claim);
    const bool was_shown = here_->show(resource).has_value();
    const bool was_held = is_held(*here_);
    const auto taken = here_->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = Ms{0}});
    was_in_time = BootClock::now() - stopped_at < lives_at_least;
    if (was_in_time) {
      EXPECT_FALSE(was_shown);
      EXPECT_TRUE(was_held);
      EXPECT_FALSE(taken);
    }
    (void)here_->end(resource);  // of who came when its place had run out
    first->signal(SIGCONT);
    EXPECT_EQ(first->read_line(), "asking");
    EXPECT_GT(token_in(first->read_line()), grant.claim.token.value());
    finish(*first);
  }
  EXPECT_TRUE(was_in_time);
}

TEST_F(Fair, AWaiterThatGivesUpWhenItIsItsTurnPassesTheTurnOn) {
  for (int round = 0; round < 20; ++round) {
    const auto grant = take(*here_);
    const auto source = open(url_);
    std::stop_source stop;
    std::jthread quitter{[&] {
      const auto got = source->wait_acquire(resource, Holder::random(),
                                            {.ttl = long_ttl, .wait = long_wait, .stop = stop.get_token()});
      if (got) source->release(got->claim);
    }};
    wait_until([&] { return waiting_in_line(server_) == 1; });
    std::optional<Grant> second;
    std::jthread waiter{[&] {
      second = here_->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = long_wait});
    }};
    wait_until([&] { return waiting_in_line(server_) == 2; });
    std::jthread stopper{[&] { stop.request_stop(); }};
    here_->release(grant.claim);
    quitter.join();
    waiter.join();
    ASSERT_TRUE(second);
    here_->release(second->claim);
  }
}

}  // namespace
}  // namespace fenceguard::test
