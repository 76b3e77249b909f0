// What lies at the server: nodes, offsets, watches.

#include "adapters/zookeeper/token_source.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "adapters/zookeeper/lock/lock_client.hpp"
#include "adapters/zookeeper/wire/layout.hpp"
#include "guard/error.hpp"
#include "guard/source/lease_lister.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/zookeeper/frames.hpp"
#include "tests/zookeeper/source/space.hpp"

namespace fenceguard::zookeeper {
namespace {

using test::eventually;
using test::FrameCut;
using test::observer;
using test::Proxy;
using Ms = std::chrono::milliseconds;

const Resource r{"accounts/42"};
constexpr Ms long_ttl{60'000};

class SourceTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<TokenSource> open(const std::string& parameters = "") const {
    return open_source(
        Url::parse(test::shared_ensemble().url(root_ + "?session_timeout=90s&timeout=60s" + parameters)));
  }
  static Grant take(TokenSource& source, const Resource& resource, const std::string& holder) {
    return std::get<Grant>(source.try_acquire(resource, Holder{holder}, long_ttl));
  }
  [[nodiscard]] std::vector<std::string> entries() const {
    return entries_of(observer().get_children(path_).children);
  }

  // Of mntr, of the shared server.
  static std::int64_t figure(const std::string& name) {
    std::int64_t value = -1;
    (void)eventually([&] {
      const auto text = test::shared_ensemble().node(0).ask("mntr");
      const auto at = text.find(name + "\t");
      if (at != text.npos) value = std::stoll(text.substr(at + name.size() + 1));
      return at != text.npos;
    });
    return value;
  }

  // Of all entries, once each has looked.
  [[nodiscard]] std::int64_t sessions_that_watch() const {
    std::int64_t count = 0;
    std::int64_t before = 0;
    for (const auto& name : entries()) {
      const auto owner = observer().get(path_ + "/" + name).stat.ephemeral_owner;
      if (before != 0 && owner != before) ++count;
      before = owner;
      ++count;
    }
    return count;
  }

  const std::string root_ = test::fresh_root();
  const std::string path_ = root_ + "/locks/accounts/42";
};

TEST_F(SourceTest, TheTokenIsTheNodesCzxidAndTheNodeTellsItsHolder) {
  const auto source = open();
  const auto grant = take(*source, r, "ann");
  ASSERT_EQ(entries().size(), 1u);
  const auto node = observer().get(path_ + "/" + entries()[0]);
  EXPECT_EQ(grant.claim.token.value(), node.stat.czxid);
  EXPECT_EQ(node.data, "ann 0");
  EXPECT_NE(node.stat.ephemeral_owner, 0);
  EXPECT_EQ(entries()[0].find("__lock__"), 32u);
  EXPECT_EQ(observer().get(root_ + "/offset").data, "0");
}

TEST_F(SourceTest, AListingLooksAtABoundedNumberOfNodes) {
  const auto source = open();
  (void)take(*source, r, "ann");
  auto& lister = dynamic_cast<LeaseLister&>(*source);
  observer().make_path(root_ + "/locks/many");
  for (std::size_t made = 0; made < LockClient::list_nodes_max;) {
    std::vector<Op> some;
    for (; some.size() < 1'000; ++made)
      some.push_back(create(root_ + "/locks/many/" + std::to_string(made), ""));
    ASSERT_TRUE(observer().multi(some).is_ok());
  }
  const auto page = lister.list_leases({.prefix = "accounts/4", .after = {}, .limit = 9});
  ASSERT_EQ(page.entries.size(), 1U);
  EXPECT_EQ(page.entries[0].claim.resource, r);
  EXPECT_EQ(page.entries[0].claim.holder, Holder{});
  EXPECT_THROW((void)lister.list_leases({}), Unavailable);
}

// The ensemble may count a session from as early as a third of its timeout before our last renewal.
TEST_F(SourceTest, NoLeaseIsGrantedForLongerThanItsSessionIsSureToLive) {
  const auto source = open_source(Url::parse(test::shared_ensemble().url(root_ + "?session_timeout=15s")));
  const auto grant = take(*source, r, "a");
  EXPECT_EQ(grant.ttl, Ms{10'000});
  EXPECT_LE(source->show(r)->remaining, Ms{10'000});
  EXPECT_EQ(take(*source, r, "a").ttl, Ms{10'000});
  EXPECT_EQ(source->renew(grant.claim, long_ttl), Renewal::renewed);
  EXPECT_LE(source->show(r)->remaining, Ms{10'000});
  EXPECT_EQ(std::get<Grant>(source->try_acquire(Resource{"b"}, Holder{"b"}, Ms{700})).ttl, Ms{700});
}

// As under a server, whose clients ask for leases of any term in any order.
TEST_F(SourceTest, WhatIsGrantedDoesNotDependOnWhatWasAskedForBefore) {
  for (const auto first : {Ms{1'000}, Ms{10'000}, long_ttl}) {
    const auto source = open_source(Url::parse(test::shared_ensemble().url(root_)));
    const auto granted = [&](const char* resource, Ms ttl) {
      return std::get<Grant>(source->try_acquire(Resource{resource}, Holder{"a"}, ttl)).ttl;
    };
    EXPECT_EQ(granted("a", first), std::min(first, Ms{10'000}));
    EXPECT_EQ(granted("b", long_ttl), Ms{10'000});
    EXPECT_EQ(granted("c", Ms{10'000}), Ms{10'000});
    EXPECT_EQ(granted("d", Ms{700}), Ms{700});
    // The short one ends by its own term, not by the session's.
    EXPECT_TRUE(test::eventually([&] { return !source->show(Resource{"d"}); }));
    EXPECT_TRUE(source->show(Resource{"b"}));
  }
}

TEST_F(SourceTest, AServerThatBoundsTheSessionBoundsTheLease) {
  test::Ensemble strict{1, {.settings = {{"maxSessionTimeout", "3000"}}}};
  const auto source = open_source(Url::parse(strict.url("/x?session_timeout=60s")));
  EXPECT_EQ(take(*source, r, "a").ttl, Ms{2'000});
}

TEST_F(SourceTest, ALeaseEndedByAnotherClientIsLostBeforeItsNextRenewal) {
  const auto source = open();
  const auto other = open();
  const auto grant = take(*source, r, "a");
  const auto kept = take(*source, Resource{"b"}, "a");
  const auto lost = source->lost(grant.claim);
  EXPECT_FALSE(lost.stop_requested());
  EXPECT_EQ(other->end(r), Release::released);
  EXPECT_TRUE(eventually([&] { return lost.stop_requested(); }));
  EXPECT_FALSE(source->lost(kept.claim).stop_requested());
}

// The sequence of the next entry counts the nodes that were made below the lock's node, and removed.
TEST_F(SourceTest, PollingAHeldLockMakesNoNodes) {
  const auto source = open();
  const auto other = open();
  const auto grant = take(*source, r, "a");
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(std::holds_alternative<LockBusy>(other->try_acquire(r, Holder{"b"}, long_ttl)));
    EXPECT_TRUE(std::holds_alternative<LockBusy>(source->try_acquire(r, Holder{"c"}, long_ttl)));
  }
  EXPECT_EQ(source->release(grant.claim), Release::released);
  EXPECT_GT(take(*other, r, "b").claim.token, grant.claim.token);
  ASSERT_EQ(entries().size(), 1u);
  // The holder's, one for each of the two that polled, and this one; removals count as well.
  EXPECT_LE(sequence_of(entries()[0]).value_or(1'000), 10u);
}

TEST_F(SourceTest, TheLowestLiveTokenIsThatOfEveryLockPathOfTheNamespace) {
  const auto elsewhere = open("&lock_path=" + root_ + "-their/%25s");
  const auto grant = take(*elsewhere, r, "a");
  const auto source = open();
  EXPECT_EQ(source->lowest_live(), grant.claim.token);
  EXPECT_EQ(elsewhere->release(grant.claim), Release::released);
  const auto own = take(*source, r, "a");
  EXPECT_EQ(elsewhere->lowest_live(), own.claim.token);
}

TEST_F(SourceTest, AfterARaiseTheOffsetIsPartOfTheToken) {
  const auto source = open();
  const auto other = open();
  EXPECT_EQ(other->release(take(*other, r, "b").claim), Release::released);  // knows the offset as it was
  source->raise(r, Token{5'000'000'000});
  const auto grant = take(*other, r, "ann");
  const auto node = observer().get(path_ + "/" + entries()[0]);
  const auto offset = std::stoll(observer().get(root_ + "/offset").data);
  EXPECT_GT(grant.claim.token.value(), 5'000'000'000);
  EXPECT_EQ(grant.claim.token.value(), node.stat.czxid + offset);
  EXPECT_EQ(source->show(r)->claim, grant.claim);
}

TEST_F(SourceTest, TheEmptyHolderIsAHolderLikeAnyOther) {
  const auto source = open();
  const auto grant = std::get<Grant>(source->try_acquire(r, Holder{}, long_ttl));
  EXPECT_EQ(open()->show(r)->claim, grant.claim);
  EXPECT_FALSE(std::get<Grant>(source->try_acquire(r, Holder{}, long_ttl)).is_new);
}

TEST_F(SourceTest, OddResourcesHaveLocksOfTheirOwn) {
  const auto source = open();
  std::vector<Grant> grants;
  for (const std::string name :
       {"a", "a/b", "zookeeper", "100%", "100%25", "x__lock__0000000001", "lock-0000000001",
        "a/lock-0000000001", "\xF0\x9F\x94\x92", "\xEF\xBF\xBD", "offset"}) {
    grants.push_back(take(*source, Resource{name}, "h"));
  }
  const auto other = open();
  for (const auto& grant : grants) EXPECT_EQ(other->show(grant.claim.resource)->claim, grant.claim);
  EXPECT_EQ(other->lowest_live(), grants.front().claim.token);
}

TEST_F(SourceTest, ADamagedOffsetIsNoLicence) {
  const auto source = open();
  const auto grant = take(*source, r, "a");
  EXPECT_EQ(observer().set(root_ + "/offset", "many").code, Code::ok);
  EXPECT_THROW((void)source->try_acquire(Resource{"b"}, Holder{"b"}, long_ttl), Unavailable);
  EXPECT_THROW((void)source->draw(), Unavailable);
  EXPECT_TRUE(observer().get_children(root_ + "/locks/b").children.empty());
  EXPECT_EQ(observer().set(root_ + "/offset", "9223372036854775807").code, Code::ok);
  EXPECT_THROW((void)source->try_acquire(Resource{"b"}, Holder{"b"}, long_ttl), Unavailable);
  EXPECT_TRUE(eventually([&] { return observer().get_children(root_ + "/locks/b").children.empty(); }));
  EXPECT_EQ(source->renew(grant.claim, long_ttl), Renewal::renewed);
}

TEST_F(SourceTest, ParametersThatAreNotUnderstoodAreRefused) {
  for (const std::string rest :
       {"?layout=zk", "?lock_path=", "?lock_path=/a", "?fair=1", "?lock_path=%25s"}) {
    EXPECT_THROW((void)open_source(Url::parse("zookeeper://h1" + rest)), InvalidInput) << rest;
  }
}

TEST_F(SourceTest, AUsersLocksAreClosedToOthers) {
  auto url = test::shared_ensemble().url(root_);
  const auto owner = open_source(Url::parse(url.insert(12, "ann:secret@")));
  (void)take(*owner, r, "a");
  const auto other = open();
  EXPECT_THROW((void)other->try_acquire(r, Holder{"b"}, long_ttl), Unavailable);
  EXPECT_THROW((void)other->end(r), Unavailable);
  EXPECT_THROW(other->raise(r, Token{1'000'000'000}), Unavailable);
}

TEST_F(SourceTest, AWaitThatEndsTakesItsNodeAway) {
  const auto source = open();
  const auto grant = take(*source, r, "a");
  const auto other = open();
  EXPECT_FALSE(other->wait_acquire(r, Holder{"b"}, {.ttl = long_ttl, .wait = Ms{50}}));
  EXPECT_EQ(entries().size(), 1u);
  std::stop_source stop;
  std::jthread waiter{[&] {
    EXPECT_FALSE(
        other->wait_acquire(r, Holder{"b"}, {.ttl = long_ttl, .wait = long_ttl, .stop = stop.get_token()}));
  }};
  EXPECT_TRUE(eventually([&] { return entries().size() == 2; }));
  stop.request_stop();
  waiter.join();
  EXPECT_EQ(entries().size(), 1u);
  EXPECT_FALSE(std::holds_alternative<Grant>(other->try_acquire(r, Holder{"b"}, long_ttl)));
  EXPECT_EQ(entries().size(), 1u);
}

TEST_F(SourceTest, TheSameHolderThatWaitsTwiceIsGrantedTheLockOnce) {
  const auto source = open();
  const auto held = take(*source, r, "a");
  std::vector<std::optional<Grant>> grants(2);
  std::vector<std::jthread> waiters;
  for (auto& grant : grants) {
    waiters.emplace_back(
        [&] { grant = source->wait_acquire(r, Holder{"b"}, {.ttl = long_ttl, .wait = long_ttl}); });
  }
  EXPECT_TRUE(eventually([&] { return entries().size() == 3; }));
  EXPECT_EQ(source->release(held.claim), Release::released);
  waiters.clear();
  ASSERT_TRUE(grants[0] && grants[1]);
  EXPECT_EQ(grants[0]->claim, grants[1]->claim);
  EXPECT_NE(grants[0]->is_new, grants[1]->is_new);
  EXPECT_EQ(entries().size(), 1u);
}

// Many wait for one lock: whoever frees it wakes the next one and nobody else. Counted are the events that
// the server sends.
TEST_F(SourceTest, AHandOverWakesExactlyOneOfManyWaiters) {
  constexpr int processes = 4;
  // Those of sessions that have just ended count for a moment yet.
  ASSERT_TRUE(eventually([] { return figure("zk_watch_count") == 0; }));
  const int waiters = std::max(processes, test::scaled(200));
  FrameCut frames{FrameCut::At::never, 0};
  const Proxy proxy{test::shared_ensemble().node(0).port(), frames.filter()};
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (int i = 0; i < processes; ++i) {
    sources.push_back(open_source(Url::parse("zookeeper://127.0.0.1:" + std::to_string(proxy.port()) + root_ +
                                             "?session_timeout=90s&timeout=60s")));
  }
  const auto first = take(*sources[0], r, "first");
  std::atomic<int> hand_overs{0};
  std::atomic<std::int64_t> last{first.claim.token.value()};
  std::atomic<int> disorders{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < waiters; ++i) {
    threads.emplace_back([&, i] {
      auto& source = *sources[i % processes];
      const auto grant =
          source.wait_acquire(r, Holder::random(), {.ttl = long_ttl, .wait = std::chrono::minutes{5}});
      if (!grant || grant->claim.token.value() <= last.exchange(grant->claim.token.value())) ++disorders;
      ++hand_overs;
      if (grant) (void)source.release(grant->claim);
    });
  }
  const auto all = static_cast<std::size_t>(waiters) + 1;
  ASSERT_TRUE(eventually([&] { return entries().size() == all; }));
  EXPECT_EQ(frames.events(), 0);
  // Each node is watched by its own session and by the next one's, which may be the same.
  const auto watches = sessions_that_watch();
  EXPECT_TRUE(eventually([&] { return figure("zk_watch_count") == watches; }));
  EXPECT_EQ(sources[0]->release(first.claim), Release::released);
  threads.clear();
  EXPECT_EQ(hand_overs, waiters);
  EXPECT_EQ(disorders, 0);
  // Each hand-over is told to the next one, and to the one who freed the lock.
  EXPECT_TRUE(eventually([&] { return frames.events() >= watches; }));
  EXPECT_EQ(frames.events(), watches);
}

// While somebody raises again and again, everything that is drawn after a raise is above its mark.
TEST_F(SourceTest, ARaiseExcludesDraws) {
  const auto raiser = open();
  std::atomic<std::int64_t> mark{0};
  std::atomic<bool> is_over{false};
  std::vector<std::jthread> threads;
  std::atomic<int> below{0};
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const auto source = open();
      const Resource resource{"raise/" + std::to_string(i)};
      std::int64_t last = 0;
      while (!is_over) {
        const auto bound = mark.load();
        const auto grant = take(*source, resource, "h");
        if (grant.claim.token.value() <= std::max(bound, last)) ++below;
        last = grant.claim.token.value();
        (void)source->release(grant.claim);
      }
    });
  }
  for (int i = 1; i <= test::scaled(200); ++i) {
    const std::int64_t next = 1'000'000'000LL * i;
    raiser->raise(r, Token{next});
    mark = next;
  }
  is_over = true;
  threads.clear();
  EXPECT_EQ(below, 0);
}

// The ensemble removes a lock's node some time after its last entry has gone, and so at any moment
// between two of our calls.
TEST_F(SourceTest, ALocksNodeMayVanishAtAnyTime) {
  std::atomic<int> removed{0};
  std::jthread remover{[&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (observer().remove(path_).code == Code::ok) ++removed;
      (void)observer().remove(root_ + "/locks/accounts");
      // Far more often than any ensemble, but not so often that a path is never whole.
      std::this_thread::sleep_for(Ms{5});
    }
  }};
  const auto source = open();
  std::int64_t last = 0;
  // Few rounds may all fall between two removals: so many more that some are hit for certain.
  for (int i = 0; i < test::scaled(200) || (removed == 0 && i < 5'000); ++i) {
    const auto grant = take(*source, r, "h");
    EXPECT_GT(grant.claim.token.value(), last);
    last = grant.claim.token.value();
    EXPECT_EQ(source->release(grant.claim), Release::released);
  }
  EXPECT_GT(removed, 0);
}

}  // namespace
}  // namespace fenceguard::zookeeper
