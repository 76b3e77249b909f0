#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "adapters/redis/fences/storage.hpp"
#include "adapters/redis/guard.hpp"
#include "guard/support/wait_for.hpp"
#include "tests/conformance/fence_calls.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::redis::test {
namespace {

using namespace fenceguard::test;
using testing::HasSubstr;

constexpr std::chrono::seconds limit{30};

Claim claim(const std::string& resource, std::int64_t token, const std::string& holder = "h") {
  return {Resource{resource}, Token{token}, Holder{holder}, std::nullopt};
}

// A server of the tests' own; each test has a namespace of its own in it.
class RedisFenceStore : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<RedisServer>(); }
  static void TearDownTestSuite() { server_.reset(); }

  [[nodiscard]] Url url() const { return Url::parse(server_->url(fmt::format("/0?prefix=n{}:", number_))); }
  [[nodiscard]] std::unique_ptr<Storage> open(const StorageOptions& options = {}) const {
    return open_storage(url(), options);
  }
  [[nodiscard]] std::unique_ptr<Storage> open_initialised(const StorageOptions& options = {}) const {
    auto storage = open(options);
    (void)init(*storage, 0);
    return storage;
  }
  [[nodiscard]] std::string key(const std::string& rest) const {
    return fmt::format("n{}:{}", number_, rest);
  }

  static std::unique_ptr<RedisServer> server_;
  const int number_ = ++last_number_;

 private:
  static int last_number_;
};

std::unique_ptr<RedisServer> RedisFenceStore::server_;
int RedisFenceStore::last_number_ = 0;

TEST_F(RedisFenceStore, NamespaceWithoutItsRecordIsUnavailableNamingTheCommand) {
  const auto storage = open({.initialise = true});
  EXPECT_EQ(storage->fences().status().state, StoreState::uninitialised);
  EXPECT_THAT(storage->fences().status().reason, HasSubstr("fence init"));
  try {
    (void)advance(*storage, claim("a", 5));
    FAIL() << "it was admitted";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), HasSubstr("fence init"));
  }
  EXPECT_EQ(server_->call({"KEYS", key("*")}).elements.size(), 0u);
}

TEST_F(RedisFenceStore, InitRaisesTheFloorAndNeverLowersIt) {
  const auto storage = open();
  EXPECT_EQ(init(*storage, 7), 7);
  EXPECT_EQ(storage->fences().status().state, StoreState::ready);
  EXPECT_EQ(init(*storage, 3), 7);
  EXPECT_EQ(init(*storage, 9), 9);
  EXPECT_EQ(advance(*storage, claim("a", 9)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("a", 10)).verdict, Verdict::admitted);
  EXPECT_EQ(storage->fences().status().floor, 9);
}

// A transaction that watches it is kept from running by a raised floor, and by no advance.
TEST_F(RedisFenceStore, TheFloorForWatchChangesWithTheFloorAlone) {
  const auto storage = open();
  Client watching{url()};
  const auto say = [&](std::vector<std::string_view> words) { return watching.call({}, words); };
  const auto floor = key("floor");
  const auto is_changed_by = [&](const std::function<void()>& act) {
    EXPECT_EQ(say({"WATCH", floor}).text, "OK");
    act();
    EXPECT_EQ(say({"MULTI"}).text, "OK");
    return say({"EXEC"}).is_nil();
  };
  EXPECT_TRUE(is_changed_by([&] { (void)init(*storage, 3); }));
  EXPECT_EQ(server_->call({"GET", floor}).text, "3");
  EXPECT_TRUE(is_changed_by([&] { (void)init(*storage, 7); }));
  EXPECT_EQ(server_->call({"GET", floor}).text, "7");
  EXPECT_FALSE(is_changed_by([&] {
    (void)advance(*storage, claim("a", 8));
    (void)advance(*storage, claim("b", 20));
    (void)revoke(*storage, "b");
    (void)rebase(*storage, "b", 15);
  }));
  EXPECT_FALSE(is_changed_by([&] { EXPECT_EQ(compact(*storage, 8).dropped, 0); }));
  EXPECT_TRUE(is_changed_by([&] { EXPECT_EQ(compact(*storage, 9).floor, 8); }));
  EXPECT_EQ(server_->call({"GET", floor}).text, "8");
  server_->call({"DEL", floor});
  EXPECT_TRUE(is_changed_by([&] { (void)init(*storage, 9); })) << "an older version initialised";
  EXPECT_TRUE(is_changed_by([&] { server_->call({"FLUSHALL"}); }));
}

TEST_F(RedisFenceStore, AViewHoldsRecordAndFloor) {
  const auto storage = open();
  (void)init(*storage, 3);
  EXPECT_EQ(show(*storage, "a"), (FenceView{std::nullopt, 3}));
  Client client{url()};
  (void)Guard{client}.write(claim("a", 5, "h1").with(Sequence{7}), {"SET", "a", "x"});
  EXPECT_EQ(show(*storage, "a"), (FenceView{Fence{Token{5}, Holder{"h1"}, Sequence{7}, false}, 3}));
}

TEST_F(RedisFenceStore, CompactedFencesAreInTheFloorAndRefuseAsBefore) {
  const auto storage = open_initialised();
  constexpr int count = 1'203;  // more than two steps
  for (int i = 1; i <= count; ++i) (void)advance(*storage, claim(fmt::format("r/{}", i), i));
  const auto done = compact(*storage, 1'001);
  EXPECT_EQ(done.dropped, 1'000);
  EXPECT_EQ(done.floor, 1'000);
  EXPECT_EQ(server_->call({"EXISTS", key("{r/1000}")}).integer, 0);
  EXPECT_EQ(advance(*storage, claim("r/7", 7)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("r/7", 1'000)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("r/1001", 1'001)).verdict, Verdict::admitted);
  EXPECT_EQ(advance(*storage, claim("r/7", 1'204)).verdict, Verdict::admitted);
  EXPECT_EQ(compact(*storage, 1'001).dropped, 0);
}

// What compaction does in several steps never opens a gap: writers go on meanwhile.
TEST_F(RedisFenceStore, NoStaleWriteLandsWhileFencesAreCompacted) {
  const auto storage = open_initialised();
  constexpr int resources = 700;
  for (int i = 0; i < resources; ++i) (void)advance(*storage, claim(fmt::format("r/{}", i), 1'000 + i));
  std::atomic<bool> is_over{false};
  std::atomic<int> admitted{0};
  std::jthread stale{[&] {
    Client client{url()};
    Guard guard{client};
    for (int i = 0; !is_over; i = (i + 1) % resources) {
      const auto name = fmt::format("r/{}", i);
      if (guard.write(claim(name, 999), {"SET", name, "stale"}).ruling.verdict == Verdict::admitted)
        ++admitted;
    }
  }};
  for (int round = 0; round < 20; ++round) {
    (void)compact(*storage, 1'000 + resources);
    for (int i = 0; i < resources; i += 7) {
      const auto ruling = advance(*storage, claim(fmt::format("r/{}", i), 2'000 + round));
      EXPECT_EQ(ruling.verdict, Verdict::admitted);
    }
  }
  is_over = true;
  stale.join();
  EXPECT_EQ(admitted, 0);
}

TEST_F(RedisFenceStore, ARebaseClosesTheFenceAtItsNumberAndLeavesANote) {
  const auto storage = open_initialised({.jump_max = 1'000});
  (void)advance(*storage, claim("a", 500));
  (void)advance(*storage, claim("b", 20));
  EXPECT_EQ(rebase(*storage, "a", 10).record, (Fence{Token{10}, Holder{}, std::nullopt, true}));
  EXPECT_EQ(advance(*storage, claim("a", 10, "")).verdict, Verdict::stale);
  const auto note = server_->call({"LRANGE", key("rebased:{a}"), "0", "-1"}).elements.at(0).text;
  for (const auto* part : {"\"by\":\"ann\"", "\"from\":\"500\"", "\"to\":\"10\""})
    EXPECT_THAT(note, HasSubstr(part));
  // What is implausible is counted from what is highest now.
  wait_until([&] { return storage->fences().status().highest == 20; }, limit);
  EXPECT_THROW((void)advance(*storage, claim("a", 1'021)), Implausible);
}

// The index tells a fence that was deleted by hand, or evicted, from a new resource.
TEST_F(RedisFenceStore, AFenceThatIsGoneIsNoLicenceAndIsSetAgainByHand) {
  const auto storage = open_initialised();
  (void)advance(*storage, claim("gone", 50));
  server_->call({"DEL", key("{gone}")});
  Client client{url()};
  Guard guard{client};
  for (const std::int64_t token : {7, 50, 51}) {
    EXPECT_THROW((void)advance(*storage, claim("gone", token)), Unavailable);
    EXPECT_THROW((void)guard.write(claim("gone", token), {"SET", "gone", "x"}), Unavailable);
    EXPECT_THROW((void)revoke(*storage, "gone", claim("gone", token)), Unavailable);
  }
  EXPECT_TRUE(server_->call({"GET", "gone"}).is_nil());
  (void)rebase(*storage, "gone", 50);
  EXPECT_EQ(advance(*storage, claim("gone", 50)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("gone", 51)).verdict, Verdict::admitted);
}

// A user who lacks one right of many stops in the middle of a script: what was there before is there still.
TEST_F(RedisFenceStore, ARefusedChangeLeavesFenceAndSequenceAsTheyWere) {
  const auto storage = open_initialised();
  (void)advance(*storage, claim("a", 50));
  for (const auto* right : {"hset", "zadd", "zscore", "hget", "persist"}) {
    server_->call({"ACL", "SETUSER", "poor", "reset", "on", ">p", "~*", "+@all", fmt::format("-{}", right)});
    Url poor = url();
    poor.user = "poor";
    poor.password = "p";
    const auto lacking = open_storage(poor, {});
    const auto before = show(*storage, "a");
    for (const auto* name : {"a", "new"}) {
      try {
        (void)advance(*lacking, claim(name, 60));
      } catch (const Unavailable&) {
      }
      try {
        Client client{poor};
        (void)Guard{client}.write(claim(name, 61).with(Sequence{1}), {"SET", name, right});
      } catch (const Unavailable&) {
        // Nothing was written, and the sequence is free.
        Client client{url()};
        const auto again = Guard{client}.write(claim(name, 61).with(Sequence{1}), {"SET", name, "again"});
        EXPECT_EQ(again.ruling.verdict, Verdict::admitted) << right << " " << name;
      }
    }
    EXPECT_GE(show(*storage, "a").record->token, before.record->token) << right;
    for (const auto* name : {"a", "new"}) (void)rebase(*storage, name, 50);
  }
}

// The floor is raised before the first fence is dropped.
TEST_F(RedisFenceStore, ACompactionThatIsRefusedPartOfTheWayIsNotToldAsNotDone) {
  const auto storage = open_initialised();
  for (const auto* name : {"a", "b"}) (void)advance(*storage, claim(name, 50));
  for (const auto* right : {"hset", "zrem", "del"}) {
    server_->call({"ACL", "SETUSER", "poor", "reset", "on", ">p", "~*", "+@all", fmt::format("-{}", right)});
    Url poor = url();
    poor.user = "poor";
    poor.password = "p";
    const auto lacking = open_storage(poor, {});
    const auto floor = storage->fences().status().floor;
    try {
      (void)compact(*lacking, 60);
      ADD_FAILURE() << "done without " << right;
    } catch (const Unavailable&) {
      EXPECT_EQ(open_storage(url(), {})->fences().status().floor, floor) << right;
    } catch (const OutcomeUnknown& error) {
      EXPECT_THAT(error.what(), HasSubstr("the floor is 50")) << right;
    }
    EXPECT_EQ(list(*storage, {}).entries.size(), 2u) << "what has a fence is in the index without " << right;
  }
  EXPECT_EQ(compact(*storage, 60).dropped, 2);
}

TEST_F(RedisFenceStore, ARevokeTakesNoAbsurdLeaseForTheFence) {
  const auto storage = open_initialised({.jump_max = 1'000});
  (void)advance(*storage, claim("a", 5));
  const auto view = revoke(*storage, "a", claim("a", INT64_MAX, "x"));
  EXPECT_EQ(view.record, (Fence{Token{5}, Holder{"h"}, std::nullopt, true}));
  EXPECT_EQ(advance(*storage, claim("a", 6)).verdict, Verdict::admitted);
}

TEST_F(RedisFenceStore, InitRepairsARecordThatIsNoNumber) {
  const auto storage = open_initialised();
  server_->call({"HSET", key("namespace"), "floor", "abc"});
  EXPECT_THROW((void)advance(*storage, claim("a", 5)), Unavailable);
  EXPECT_EQ(init(*storage, 9), 9);
  EXPECT_EQ(advance(*storage, claim("a", 10)).verdict, Verdict::admitted);
  // What was compacted away stays refused.
  EXPECT_EQ(compact(*storage, 11).dropped, 1);
  server_->call({"HSET", key("namespace"), "floor", "abc"});
  EXPECT_EQ(init(*storage, 9), 10);
  EXPECT_EQ(advance(*storage, claim("a", 10)).verdict, Verdict::stale);
  server_->call({"HSET", key("namespace"), "floor", "abc", "highest", "-1"});
  EXPECT_THROW((void)init(*storage, 9), Unavailable);
}

TEST_F(RedisFenceStore, ACommandWithTooFewWordsRaisesNoFence) {
  const auto storage = open_initialised();
  Client client{url()};
  EXPECT_THROW((void)Guard{client}.write(claim("short", 9), {"SET", "short"}), InvalidInput);
  EXPECT_FALSE(show(*storage, "short").record);
}

TEST_F(RedisFenceStore, StatusFollowsTheServer) {
  const auto storage = open_initialised();
  (void)advance(*storage, claim("a", 7));
  EXPECT_EQ(storage->fences().status().highest, 7);
  wait_until([&] { return storage->fences().status().resources == 1; }, limit);
  server_->call({"DEL", key("namespace")});
  wait_until([&] { return storage->fences().status().state == StoreState::uninitialised; }, limit);
  EXPECT_THROW((void)advance(*storage, claim("a", 8)), Unavailable);
}

TEST(RedisFenceStoreCluster, FencesOfSingleResourcesWorkAndTheRestIsRefusedWithASentence) {
  RedisCluster cluster;
  const auto storage = open_storage(Url::parse(cluster.url()), {});
  EXPECT_EQ(storage->fences().status().state, StoreState::ready);
  for (const auto* name : {"a", "b", "c", "d/e"}) {
    EXPECT_EQ(advance(*storage, claim(name, 5)).verdict, Verdict::admitted);
    EXPECT_EQ(advance(*storage, claim(name, 4)).verdict, Verdict::stale);
    EXPECT_TRUE(revoke(*storage, name).record->closed);
    EXPECT_EQ(rebase(*storage, name, 3).record->token, Token{3});
    EXPECT_EQ(show(*storage, name).record->token, Token{3});
  }
  // With a bound the first token, which is the server's clock, is no absurd one; one above a fence is.
  const auto bounded = open_storage(Url::parse(cluster.url()), {.jump_max = 1LL << 40});
  EXPECT_EQ(advance(*bounded, claim("first", 1'795'000'000'000'000)).verdict, Verdict::admitted);
  EXPECT_THROW((void)advance(*bounded, claim("first", INT64_MAX)), Implausible);
  EXPECT_GT(bounded->fences().status().highest, 1'795'000'000'000'000);
  EXPECT_THROW((void)init(*storage, 1), InvalidInput);
  EXPECT_THROW((void)compact(*storage, 1), InvalidInput);
  EXPECT_THROW((void)list(*storage, {}), InvalidInput);
}

}  // namespace
}  // namespace fenceguard::redis::test
