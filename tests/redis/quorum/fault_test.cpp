// The quorum when its servers fail: killed, paused, restarted with and without their data.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "adapters/redis/guard.hpp"
#include "adapters/redis/quorum/source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/redis/quorum/servers.hpp"

namespace fenceguard::test {
namespace {

using Ms = std::chrono::milliseconds;
constexpr Ms long_ttl{60'000};
constexpr std::chrono::seconds limit{20};

class QuorumFault : public testing::Test {
 protected:
  // A server that was killed refuses at once: so long a time-out is waited for where one is paused alone.
  [[nodiscard]] std::unique_ptr<TokenSource> open(
      const std::string& parameters = "?node_timeout=5s&connect_timeout=20s") const {
    return redis::open_quorum_source(Url::parse(servers_.url(parameters)));
  }

  static std::optional<Claim> take(TokenSource& source, const Resource& resource, Ms ttl = long_ttl) {
    const auto answer = source.try_acquire(resource, Holder::random(), ttl);
    const auto* grant = std::get_if<Grant>(&answer);
    return grant == nullptr ? std::nullopt : std::optional{grant->claim};
  }

  // A whole turn: taken, kept, shown and freed, with a higher token than ever.
  void expect_turn(TokenSource& source) { expect_turn(source, r_); }
  void expect_turn(TokenSource& source, const Resource& resource) {
    const auto claim = take(source, resource);
    ASSERT_TRUE(claim);
    EXPECT_GT(claim->token.value(), highest_);
    highest_ = claim->token.value();
    EXPECT_FALSE(take(source, resource));
    EXPECT_EQ(source.renew(*claim, long_ttl), Renewal::renewed);
    const auto record = source.show(resource);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->claim, *claim);
    EXPECT_EQ(source.release(*claim), Release::released);
  }

  // Until call() answers true, however often it throws.
  template <class Call>
  static bool wait_until(Call&& call) {
    const auto deadline = BootClock::now() + limit;
    while (BootClock::now() < deadline) {
      try {
        if (call()) return true;
      } catch (const Error&) {
      }
      std::this_thread::sleep_for(Ms{5});
    }
    return false;
  }

  // The number of nodes that have a lock of r_.
  int held_count() {
    int count = 0;
    for (std::size_t i = 0; i < servers_.size(); ++i)
      count += static_cast<int>(servers_[i].call({"EXISTS", "fenceguard:quorum:lock:{r}"}).integer);
    return count;
  }

  QuorumServers servers_{5};
  const Resource r_{"r"};
  std::int64_t highest_ = 0;
};

TEST_F(QuorumFault, WithOneOrTwoOfFiveDeadItWorksAndWithThreeNothingIsGranted) {
  auto source = open();
  (void)source->draw();
  expect_turn(*source);
  for (const std::size_t dead : {0, 3}) {
    servers_[dead].kill();
    expect_turn(*source);
    expect_turn(*open());
  }
  const auto claim = take(*source, r_);
  ASSERT_TRUE(claim);
  servers_[1].kill();
  EXPECT_THROW((void)take(*source, Resource{"s"}), Error);
  EXPECT_THROW((void)source->renew(*claim, long_ttl), Error);
  EXPECT_THROW((void)source->show(r_), Error);
  EXPECT_THROW((void)source->draw(), Unavailable);
  EXPECT_THROW((void)open(), Unavailable);
  for (const std::size_t dead : {0, 1, 3}) servers_[dead].start();
  EXPECT_TRUE(wait_until([&] { return source->renew(*claim, long_ttl) == Renewal::renewed; }));
  EXPECT_EQ(source->release(*claim), Release::released);
  EXPECT_TRUE(wait_until([&] { return held_count() == 0; }));
  expect_turn(*source);
}

// A hanging server costs its time-out once, not with every call.
TEST_F(QuorumFault, WithOneOrTwoOfFivePausedItWorksAndWithThreeNothingIsUsed) {
  constexpr Ms node_timeout{1'500};
  auto source = open(fmt::format("?node_timeout={}ms", node_timeout.count()));
  (void)source->draw();
  servers_[4].pause();
  servers_[2].pause();
  const auto take_turn = [&](int turn) {
    int tries = 0;  // as no other one may be late now
    EXPECT_TRUE(wait_until([&] {
      expect_turn(*source, Resource{fmt::format("turn/{}/{}", turn, ++tries)});
      return true;
    }));
  };
  take_turn(0);
  const auto begin = BootClock::now();
  for (int turn = 1; turn <= 20; ++turn) take_turn(turn);
  EXPECT_LT(BootClock::now() - begin, 20 * node_timeout);  // a turn has five calls
  servers_[0].pause();
  EXPECT_THROW((void)take(*source, r_), Error);
  EXPECT_THROW((void)take(*source, r_), Unavailable);  // three are out now, and are asked nothing
  for (const std::size_t paused : {0, 2, 4}) servers_[paused].resume();
  // What the paused ones were asked is withdrawn when they are back.
  EXPECT_TRUE(wait_until([&] { return held_count() == 0; }));
  EXPECT_TRUE(wait_until([&] { return take(*source, r_).has_value(); }));
}

// At default settings; three renewals are due meanwhile. A server may well be late before it is known.
TEST_F(QuorumFault, OneHungServerThatIsListedFirstEndsNoLease) {
  auto source = open("");
  std::optional<Lease> lease;
  ASSERT_TRUE(wait_until([&] {
    (void)source->draw();
    lease = source->acquire(r_, {.ttl = Ms{10'000}});
    return lease.has_value();
  }));
  servers_[0].pause();
  const auto deadline = BootClock::now() + Ms{12'000};
  while (BootClock::now() < deadline && !lease->lost().stop_requested()) std::this_thread::sleep_for(Ms{50});
  EXPECT_FALSE(lease->lost().stop_requested());
  servers_[0].resume();
}

TEST_F(QuorumFault, AServerThatCameBackEmptyDoesNotVoteUntilARaise) {
  auto source = open();
  (void)source->draw();
  expect_turn(*source);
  const std::string counter = "fenceguard:quorum:counter";
  (void)servers_[2].call({"FLUSHALL"});
  servers_[0].kill();
  servers_[1].kill();
  EXPECT_THROW((void)take(*source, r_), Unavailable);
  EXPECT_THROW(source->raise(r_, Token{1}), Unavailable);
  EXPECT_EQ(servers_[2].call({"EXISTS", counter}).integer, 0);
  servers_[0].start();
  ASSERT_TRUE(wait_until([&] { return take(*source, Resource{"other"}).has_value(); }));
  source->raise(r_, Token{1});
  EXPECT_GE(std::stoll(servers_[2].call({"GET", counter}).text), highest_);
  servers_[3].kill();
  EXPECT_TRUE(wait_until([&] { return take(*source, Resource{"another"}).has_value(); }));
  expect_turn(*source);
}

TEST_F(QuorumFault, WhereAllForgotTokensGoOnAboveEverythingThatWasGranted) {
  auto source = open();
  (void)source->draw();
  for (int i = 0; i < 10; ++i) expect_turn(*source);
  for (std::size_t i = 0; i < servers_.size(); ++i) (void)servers_[i].call({"FLUSHALL"});
  EXPECT_THROW((void)take(*source, r_), Unavailable);
  (void)source->draw();
  expect_turn(*source);
}

TEST_F(QuorumFault, AServerThatWasKilledKeepsItsCounterAndItsHolds) {
  auto source = open();
  (void)source->draw();
  const auto claim = take(*source, r_);
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    servers_[i].kill();
    servers_[i].start();
  }
  EXPECT_TRUE(wait_until([&] { return source->renew(*claim, long_ttl) == Renewal::renewed; }));
  EXPECT_FALSE(take(*open(), r_));
  EXPECT_EQ(source->release(*claim), Release::released);
  highest_ = claim->token.value();
  expect_turn(*source);
}

// A server whose clock runs ahead frees its hold early; a minority of those frees nothing.
TEST_F(QuorumFault, HoldsThatEndEarlyAtAMinorityLeaveTheTenureAlone) {
  auto source = open();
  (void)source->draw();
  const auto claim = take(*source, r_);
  for (const std::size_t early : {1, 4}) (void)servers_[early].call({"DEL", "fenceguard:quorum:lock:{r}"});
  EXPECT_FALSE(take(*open(), r_));
  EXPECT_EQ(source->renew(*claim, long_ttl), Renewal::renewed);
  (void)servers_[0].call({"DEL", "fenceguard:quorum:lock:{r}"});
  EXPECT_EQ(source->renew(*claim, long_ttl), Renewal::lost);
}

TEST_F(QuorumFault, ALeaseIsLostInOurEyesBeforeTheServersEndIt) {
  auto source = open();
  (void)source->draw();
  for (const Ms ttl : {Ms{10}, Ms{20}, Ms{100}, Ms{60'000}}) {
    const Resource resource{fmt::format("ttl/{}", ttl.count())};
    Ms grant_ttl{};  // on a slow machine the asking may use up so short a term
    ASSERT_TRUE(wait_until([&] {
      const auto answer = source->try_acquire(resource, Holder{"h"}, ttl);
      const auto* grant = std::get_if<Grant>(&answer);
      if (grant != nullptr) grant_ttl = grant->ttl;
      return grant != nullptr;
    }));
    EXPECT_GE(grant_ttl, ttl_min);
    EXPECT_LE(grant_ttl, ttl);
    const auto node_ttl = std::max(ttl, Ms{12});
    EXPECT_LE(grant_ttl - grant_ttl / 10, node_ttl - node_ttl / 100 - Ms{2});
  }
}

TEST_F(QuorumFault, AServerThatMayForgetItsCounterIsRefusedUnlessTheUserSaysSo) {
  (void)servers_[3].call({"CONFIG", "SET", "appendfsync", "everysec"});
  try {
    (void)open();
    ADD_FAILURE() << "opened";
  } catch (const Unavailable& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(std::to_string(servers_[3].port())), message.npos) << message;
    EXPECT_NE(message.find("appendfsync always"), message.npos) << message;
    EXPECT_NE(message.find("?unsafe_persistence=1"), message.npos) << message;
  }
  (void)servers_[3].call({"CONFIG", "SET", "appendfsync", "always"});
  (void)servers_[3].call({"CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"});
  EXPECT_THROW((void)open(), Unavailable);
  (void)servers_[3].call({"CONFIG", "SET", "no-appendfsync-on-rewrite", "no"});
  EXPECT_TRUE(open());
  (void)servers_[3].call({"ACL", "SETUSER", "default", "-config"});
  EXPECT_THROW((void)open(), Unavailable);
  auto source = open("?unsafe_persistence=1&node_timeout=5s");
  (void)source->draw();
  expect_turn(*source);
}

TEST_F(QuorumFault, AReplicaAndAPromotedOneAreRefusedAndAPlainRestartIsNot) {
  for (const std::size_t node : {3, 4}) {
    servers_[node].stop();
    servers_[node].start();
  }
  EXPECT_TRUE(open());
  (void)servers_[2].call({"CONFIG", "SET", "repl-diskless-sync-delay", "0"});
  (void)servers_[1].call({"REPLICAOF", "127.0.0.1", std::to_string(servers_[2].port())});
  ASSERT_TRUE(wait_until([&] {
    return servers_[1].call({"INFO", "replication"}).text.find("link_status:up") != std::string::npos;
  }));
  EXPECT_THROW((void)open(), Unavailable);
  (void)servers_[1].call({"REPLICAOF", "NO", "ONE"});
  try {
    (void)open();
    ADD_FAILURE() << "opened";
  } catch (const Unavailable& error) {
    EXPECT_NE(std::string{error.what()}.find("promoted"), std::string::npos) << error.what();
  }
  (void)servers_[1].call({"DEL", "fenceguard:quorum:marker"});
  ASSERT_TRUE(wait_until([&] {  // else it refuses to stop
    const auto info = servers_[1].call({"INFO", "persistence"}).text;
    return info.find("aof_rewrite_in_progress:0") != info.npos &&
           info.find("aof_rewrite_scheduled:0") != info.npos;
  }));
  servers_[1].stop();
  servers_[1].start();
  auto source = open();
  (void)source->draw();
  expect_turn(*source);
}

// A release that a majority did not confirm may have ended nothing: what the tenure has left stays its own.
TEST_F(QuorumFault, AReleaseWithoutAMajorityIsNotDoneLaterBehindATenureThatLives) {
  auto source = open();
  (void)source->draw();
  const auto claim = take(*source, r_);
  ASSERT_TRUE(claim);
  for (const std::size_t paused : {0, 1, 2}) servers_[paused].kill();
  EXPECT_THROW((void)source->release(*claim), Error);
  for (const std::size_t paused : {0, 1, 2}) servers_[paused].start();
  EXPECT_TRUE(wait_until([&] { return take(*source, Resource{"other"}).has_value(); }));
  source.reset();  // does what is left to be done
  EXPECT_EQ(held_count(), 3);
}

TEST_F(QuorumFault, AnEndIsThatOfTheTenureThatIsSeen) {
  auto source = open();
  (void)source->draw();
  EXPECT_EQ(source->end(r_), Release::not_held);
  ASSERT_TRUE(take(*source, r_));
  (void)servers_[1].call({"DEL", "fenceguard:quorum:lock:{r}"});
  (void)servers_[1].call({"SET", "fenceguard:quorum:lock:{r}", "77 another nonce"});
  EXPECT_EQ(source->end(r_), Release::released);
  EXPECT_EQ(held_count(), 1);
}

TEST(QuorumAnswer, ThatCannotBeReadIsUnknown) {
  RedisServer server{{"--appendonly", "yes", "--appendfsync", "always", "--rename-command", "EVALSHA", "",
                      "--rename-command", "EXISTS", "EVALSHA"}};
  const auto source = redis::open_quorum_source(Url::parse("redis-quorum" + server.url().substr(5)));
  const Claim claim{Resource{"r"}, Token{7}, Holder{"h"}, std::nullopt};
  EXPECT_THROW((void)source->renew(claim, long_ttl), OutcomeUnknown);
  EXPECT_THROW((void)source->show(claim.resource), Unavailable);
}

TEST_F(QuorumFault, InTheSteadyStateATurnIsOneRoundTripToTakeAndOneToFree) {
  auto source = open();
  (void)source->draw();
  expect_turn(*source);
  const auto calls = [&](std::size_t node) {
    const auto text = servers_[node].call({"INFO", "commandstats"}).text;
    const auto at = text.find("cmdstat_evalsha:calls=");
    return at == text.npos ? 0 : std::stoi(text.substr(at + 22));
  };
  std::vector<int> before;
  for (std::size_t node = 0; node < servers_.size(); ++node) before.push_back(calls(node));
  constexpr int turns = 50;
  for (int i = 0; i < turns; ++i) EXPECT_EQ(source->release(*take(*source, r_)), Release::released);
  for (std::size_t node = 0; node < servers_.size(); ++node) EXPECT_EQ(calls(node) - before[node], 2 * turns);
}

// Holders stop past their lease, as in a long pause, and then write all the same; meanwhile a successor took
// the lock and advanced. The guard is a further server's.
TEST_F(QuorumFault, NoStaleWriteOfAHolderThatWasStoppedPastItsLeaseIsAdmitted) {
  auto source = open("?node_timeout=10s");
  auto others = open("?node_timeout=10s");
  (void)source->draw();
  RedisServer data;
  (void)data.call({"HSET", "fenceguard:namespace", "floor", "0", "highest", "0"});
  redis::Client client{data.url()};
  redis::Guard guard{client};
  int stale_admitted = 0;
  int successor_refused = 0;
  for (int i = 0; i < scaled(200); ++i) {
    std::optional<Claim> first;  // on a slow machine the asking may use up so short a term
    ASSERT_TRUE(wait_until([&] { return (first = take(*source, r_, Ms{50})).has_value(); }));
    EXPECT_EQ(guard.write(*first, {"SET", "{r}:value", "first"}).ruling.verdict, Verdict::admitted);
    const auto second = others->wait_acquire(r_, Holder::random(), {.ttl = long_ttl, .wait = Ms{20'000}});
    ASSERT_TRUE(second);
    successor_refused += guard.advance(second->claim).verdict != Verdict::admitted;
    const auto late = guard.write(*first, {"SET", "{r}:value", "stale"}).ruling.verdict;
    stale_admitted += late != Verdict::stale;
    const auto written = guard.write(second->claim, {"SET", "{r}:value", "second"}).ruling.verdict;
    successor_refused += written != Verdict::admitted;
    EXPECT_EQ(source->renew(*first, long_ttl), Renewal::lost);
    EXPECT_EQ(source->release(*first), Release::not_held);
    EXPECT_EQ(others->release(second->claim), Release::released);
  }
  EXPECT_EQ(stale_admitted, 0);
  EXPECT_EQ(successor_refused, 0);
}

TEST(QuorumUrl, WhatIsNoQuorumIsInvalid) {
  for (const char* text : {"redis-quorum://a,b,a", "redis-quorum:///tmp/socket", "redis-quorum://a?fair=1",
                           "redis-quorum://a?node_timeout=0s", "redis-quorum://a?unsafe_persistence=yes",
                           "redis-quorum://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p"}) {
    EXPECT_THROW((void)redis::open_quorum_source(Url::parse(text)), InvalidInput) << text;
  }
}

}  // namespace
}  // namespace fenceguard::test
