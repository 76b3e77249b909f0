// What becomes of leases whose session is cut, silenced or expired.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "adapters/zookeeper/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/until_answered.hpp"
#include "tests/guard/memory_guard.hpp"
#include "tests/process/child_process.hpp"
#include "tests/process/proxy.hpp"
#include "tests/zookeeper/source/space.hpp"

namespace fenceguard::zookeeper {
namespace {

using test::eventually;
using test::Proxy;
using Ms = std::chrono::milliseconds;

const Resource r{"accounts/42"};
constexpr Ms long_ttl{60'000};

std::unique_ptr<TokenSource> open_at(int port, const std::string& root, const std::string& timeout) {
  return open_source(
      Url::parse("zookeeper://127.0.0.1:" + std::to_string(port) + root + "?session_timeout=" + timeout));
}

int shared_port() {
  return test::shared_ensemble().node(0).port();
}

std::optional<Grant> wait_for(TokenSource& source, const Resource& resource, const std::string& holder) {
  return source.wait_acquire(resource, Holder{holder}, {.ttl = long_ttl, .wait = long_ttl});
}

TEST(Suspended, ACutConnectionLosesTheLeaseAtOnceThoughTheSessionComesBack) {
  const auto root = test::fresh_root();
  Proxy proxy{shared_port()};
  const auto source = open_at(proxy.port(), root, "90s");
  auto lease = source->acquire(r, {.ttl = long_ttl});
  ASSERT_TRUE(lease);
  proxy.set(Proxy::Way::closed);
  EXPECT_TRUE(eventually([&] { return lease->lost().stop_requested(); }));
  // The ensemble still keeps the node, so nobody else can have the lock yet.
  EXPECT_EQ(test::observer().get_children(root + "/locks/accounts/42").children.size(), 1u);
  proxy.set(Proxy::Way::open);
  // Then it is removed, long before the session would have ended.
  const auto other = open_at(shared_port(), root, "90s");
  const auto next = wait_for(*other, r, "next");
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, lease->claim().token);
  EXPECT_EQ(source->renew(lease->claim(), long_ttl), Renewal::lost);
  EXPECT_EQ(lease->release(), Release::not_held);
}

// Where our own process stands still it is told later, but not each time.
TEST(Suspended, ASilentServerLosesTheLeaseBeforeAnybodyElseCanHaveIt) {
  bool was_in_time = false;
  for (int i = 0; i < 5 && !was_in_time; ++i) {
    const auto root = test::fresh_root();
    Proxy proxy{shared_port()};
    const auto source = open_at(proxy.port(), root, "6s");
    auto lease = source->acquire(r, {.ttl = long_ttl});
    ASSERT_TRUE(lease);
    proxy.set(Proxy::Way::silent);
    const auto other = open_at(shared_port(), root, "6s");
    const auto next = wait_for(*other, r, "next");
    ASSERT_TRUE(next);
    was_in_time = lease->lost().stop_requested();
    EXPECT_TRUE(eventually([&] { return lease->lost().stop_requested(); }));
    EXPECT_GT(next->claim.token, lease->claim().token);
  }
  EXPECT_TRUE(was_in_time);
}

TEST(Suspended, AnExpiredSessionEndsTheLeaseAndTheNextAskOpensAnother) {
  const auto root = test::fresh_root();
  Proxy proxy{shared_port()};
  const auto source = open_at(proxy.port(), root, "5s");
  const auto first = std::get<Grant>(source->try_acquire(r, Holder{"a"}, long_ttl));
  proxy.set(Proxy::Way::closed);
  const auto other = open_at(shared_port(), root, "90s");
  const auto second = wait_for(*other, r, "b");
  ASSERT_TRUE(second);
  EXPECT_GT(second->claim.token, first.claim.token);
  EXPECT_TRUE(eventually([&] { return source->lost(first.claim).stop_requested(); }));
  proxy.set(Proxy::Way::open);
  EXPECT_EQ(source->renew(first.claim, long_ttl), Renewal::lost);
  EXPECT_EQ(source->release(first.claim), Release::not_held);
  EXPECT_EQ(other->renew(second->claim, long_ttl), Renewal::renewed);
  EXPECT_EQ(other->release(second->claim), Release::released);
  const auto third = wait_for(*source, r, "a");
  ASSERT_TRUE(third);
  EXPECT_GT(third->claim.token, second->claim.token);
}

// An ensemble that was restored to an older state, or rebuilt, knows less than the client has seen: the
// client refuses it for ever, and never hears that its session is over.
TEST(Suspended, AfterARestoreTheNextAskOpensAnotherSession) {
  test::Ensemble own{1};
  const auto source = open_source(Url::parse(own.url("/x?session_timeout=4s&timeout=5s")));
  for (int i = 0; i < 20; ++i) (void)test::until_answered([&] { return source->draw(); });
  const auto first =
      test::until_answered([&] { return std::get<Grant>(source->try_acquire(r, Holder{"a"}, long_ttl)); });
  own.node(0).stop();
  std::filesystem::remove_all(own.node(0).data() + "/version-2");
  own.node(0).start();
  own.wait_until_serving();
  EXPECT_TRUE(eventually([&] { return source->lost(first.claim).stop_requested(); }));
  std::optional<Grant> next;
  EXPECT_TRUE(eventually([&] {
    try {
      auto answer = source->try_acquire(r, Holder{"a"}, long_ttl);
      if (auto* grant = std::get_if<Grant>(&answer)) next = *grant;
    } catch (const Error&) {
      // The server is not whole yet.
    }
    return next.has_value();
  }));
  EXPECT_EQ(source->renew(first.claim, long_ttl), Renewal::lost);
}

TEST(Suspended, AWaiterKeepsItsPlaceWhileItsConnectionIsAway) {
  const auto root = test::fresh_root();
  Proxy proxy{shared_port()};
  const auto holder = open_at(shared_port(), root, "90s");
  const auto held = std::get<Grant>(holder->try_acquire(r, Holder{"a"}, long_ttl));
  const auto waiting = open_at(proxy.port(), root, "90s");
  std::optional<Grant> grant;
  std::jthread waiter{[&] { grant = wait_for(*waiting, r, "b"); }};
  const auto places = [&] { return test::observer().get_children(root + "/locks/accounts/42").children; };
  EXPECT_TRUE(eventually([&] { return places().size() == 2; }));
  const auto before = places();
  proxy.set(Proxy::Way::closed);
  EXPECT_EQ(holder->release(held.claim), Release::released);
  proxy.set(Proxy::Way::open);
  waiter.join();
  ASSERT_TRUE(grant);
  const auto after = places();
  ASSERT_EQ(after.size(), 1u);
  EXPECT_NE(std::find(before.begin(), before.end(), after[0]), before.end());
}

TEST(Suspended, AStoppedWaitEndsThoughTheConnectionIsAway) {
  const auto root = test::fresh_root();
  Proxy proxy{shared_port()};
  const auto holder = open_at(shared_port(), root, "90s");
  (void)std::get<Grant>(holder->try_acquire(r, Holder{"a"}, long_ttl));
  const auto waiting = open_at(proxy.port(), root, "5s");
  std::stop_source stop;
  std::optional<Grant> grant;
  std::jthread waiter{[&] {
    grant =
        waiting->wait_acquire(r, Holder{"b"}, {.ttl = long_ttl, .wait = long_ttl, .stop = stop.get_token()});
  }};
  const auto places = [&] {
    return test::observer().get_children(root + "/locks/accounts/42").children.size();
  };
  EXPECT_TRUE(eventually([&] { return places() == 2; }));
  proxy.set(Proxy::Way::closed);
  stop.request_stop();
  waiter.join();
  EXPECT_FALSE(grant);
  EXPECT_TRUE(eventually([&] { return places() == 1; }));
}

// Another process holds the lock and is stopped past its session: it wakes up without the lease.
TEST(Suspended, AProcessStoppedPastItsSessionHasLostItsLease) {
  const auto root = test::fresh_root();
  test::ChildProcess child{{test::shared_ensemble().url(root + "?session_timeout=5s"), r.name()}};
  const auto said = child.read_line();
  ASSERT_TRUE(said);
  ASSERT_EQ(said->substr(0, 6), "token ");
  child.signal(SIGSTOP);
  const auto source = open_at(shared_port(), root, "90s");
  const auto next = wait_for(*source, r, "next");
  child.signal(SIGCONT);
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token.value(), std::stoll(said->substr(6)));
  child.close_input();
  EXPECT_EQ(child.read_line(), "not_held");
  EXPECT_EQ(source->renew(next->claim, long_ttl), Renewal::renewed);
}

// A holder whose session expires while it goes on believing, again and again: it writes once its successor
// has advanced. None of its writes is admitted, and none of the successor's refused.
class Lane {
 public:
  Lane(const std::string& root, int number)
      : resource_{"lane/" + std::to_string(number)},
        proxy_{shared_port()},
        believer_{open_at(proxy_.port(), root, "200ms")},
        successor_{open_at(shared_port(), root, "90s")} {}

  void cycle() {
    try {
      cycle_once();
    } catch (const Error& fault) {
      ADD_FAILURE() << resource_.name() << ": " << fault.what();
    }
  }

  int cycles = 0;
  int admitted = 0;  // of the believer's writes
  int refused = 0;   // of the successor's
  int late = 0;      // told that it lost the lock, but after its successor had it
  int untold = 0;

 private:
  void cycle_once() {
    proxy_.set(Proxy::Way::open);
    // Its session is so short that the server may end it before it has answered.
    const auto old = test::until_answered([&] { return wait_for(*believer_, resource_, "believer"); });
    if (!old || guard_.advance(old->claim).verdict != Verdict::admitted) return fail();
    proxy_.set(Proxy::Way::closed);
    const auto next = wait_for(*successor_, resource_, "successor");
    if (!next || next->claim.token <= old->claim.token) return fail();
    if (guard_.advance(next->claim).verdict != Verdict::admitted) ++refused;
    if (guard_.write(old->claim, "old").verdict != Verdict::stale) ++admitted;
    if (guard_.write(next->claim, "new").verdict != Verdict::admitted) ++refused;
    const auto lost = believer_->lost(old->claim);
    if (!lost.stop_requested()) ++late;
    if (!eventually([&] { return lost.stop_requested(); })) ++untold;
    if (guard_.value(resource_) != "new") ++admitted;
    if (successor_->release(next->claim) != Release::released) return fail();
    ++cycles;
  }

  void fail() { ADD_FAILURE() << "no lock in " << resource_.name(); }

  const Resource resource_;
  test::MemoryGuard guard_;
  Proxy proxy_;
  const std::unique_ptr<TokenSource> believer_;
  const std::unique_ptr<TokenSource> successor_;
};

TEST(Suspended, HundredExpiredHoldersWriteNothingAndBlockNoSuccessor) {
  constexpr int lanes = 10;
  const auto root = test::fresh_root();
  std::vector<std::unique_ptr<Lane>> all;
  for (int i = 0; i < lanes; ++i) all.push_back(std::make_unique<Lane>(root, i));
  std::vector<std::jthread> threads;
  for (auto& lane : all) {
    threads.emplace_back([&lane] {
      for (int i = 0; i < test::scaled(10); ++i) lane->cycle();
    });
  }
  threads.clear();
  int late = 0;
  for (const auto& lane : all) {
    late += lane->late;
    EXPECT_EQ(lane->cycles, test::scaled(10));
    EXPECT_EQ(lane->admitted, 0);
    EXPECT_EQ(lane->refused, 0);
    EXPECT_EQ(lane->untold, 0);
  }
  // Late is who stands still while the server does not.
  EXPECT_LT(late, lanes * test::scaled(10));
}

}  // namespace
}  // namespace fenceguard::zookeeper
