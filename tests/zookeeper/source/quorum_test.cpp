// An ensemble whose servers die, stop and come back.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zookeeper/zookeeper.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "adapters/zookeeper/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/process/proxy.hpp"
#include "tests/zookeeper/source/space.hpp"

namespace fenceguard::zookeeper {
namespace {

using test::Ensemble;
using test::EnsembleNode;
using test::eventually;
using test::Proxy;
using Ms = std::chrono::milliseconds;

const Resource r{"accounts/42"};
constexpr Ms long_ttl{60'000};

std::unique_ptr<TokenSource> open_at(const Ensemble& ensemble, const std::string& rest) {
  return open_source(Url::parse(ensemble.url(rest)));
}

// A grant within a minute, whatever fails meanwhile.
std::optional<Grant> take_at_last(TokenSource& source, const Resource& resource) {
  std::optional<Grant> grant;
  (void)eventually([&] {
    try {
      auto answer = source.try_acquire(resource, Holder::random(), long_ttl);
      if (auto* taken = std::get_if<Grant>(&answer)) grant = *taken;
    } catch (const Error&) {
      // The ensemble is not whole yet.
    }
    return grant.has_value();
  });
  return grant;
}

// The same, with the lease kept.
std::optional<Lease> acquire_at_last(TokenSource& source, const Resource& resource) {
  std::optional<Lease> lease;
  (void)eventually([&] {
    try {
      lease = source.acquire(resource, {.ttl = long_ttl});
    } catch (const Error&) {
      // The ensemble is not whole yet.
    }
    return lease.has_value();
  });
  return lease;
}

// What each server knows of a lock's entries: where they differ, the servers do.
std::string told_of(Ensemble& ensemble, const std::string& lock) {
  std::string told;
  for (int i = 0; i < 3; ++i) {
    const auto url = fmt::format("zookeeper://127.0.0.1:{}/", ensemble.node(i).port());
    Session session{address_of(Url::parse(url)), Ms{20'000}};
    session.wait_until_connected();
    told += fmt::format("\nserver {}:", i);
    for (const auto& name : session.get_children(lock).children) {
      told += fmt::format(" {} of session {:x}", name, session.get(lock + "/" + name).stat.ephemeral_owner);
    }
  }
  return told;
}

// How often a server found, since it was started, that a transaction left it with other data than its leader.
// It may be late with an answer after an election.
int mismatches(const EnsembleNode& node) {
  const std::string name = "zk_digest_mismatches_count";
  std::string answer;
  auto place = std::string::npos;
  const bool is_told = eventually([&] {
    answer = node.ask("mntr");
    place = answer.find(name);
    return place != std::string::npos;
  });
  if (!is_told) throw std::runtime_error{"ZooKeeper does not tell of its digests: " + answer};
  return std::stoi(answer.substr(place + name.size()));
}

// Takes and frees one lock as fast as it can, and knows of every grant when it was asked for and when it
// came. A taker that waited in vain goes on with a new session, as a service that is started again: where a
// leader dies, ZooKeeper 3.8.0 may leave a node on one of three servers, which no client that is connected to
// another one sees, until the session ends that made it.
class Load {
 public:
  struct Taken {
    std::int64_t token;
    BootClock::time_point asked_at;
    BootClock::time_point granted_at;
  };

  Load(const Ensemble& ensemble, std::string resource, int takers) : resource_{std::move(resource)} {
    for (int i = 0; i < takers; ++i) {
      threads_.emplace_back([this, &ensemble](const std::stop_token& stop) { run(ensemble, stop); });
    }
  }

  [[nodiscard]] std::size_t count() {
    const std::scoped_lock lock{mutex_};
    return taken_.size();
  }

  std::vector<Taken> stop() {
    for (auto& thread : threads_) thread.request_stop();
    threads_.clear();
    return taken_;
  }

  // Grants of which one came before the other was asked for have tokens in that order, and no two are equal.
  static int disorders(std::vector<Taken> taken) {
    int count = 0;
    std::sort(taken.begin(), taken.end(),
              [](const auto& a, const auto& b) { return a.asked_at < b.asked_at; });
    auto by_end = taken;
    std::sort(by_end.begin(), by_end.end(),
              [](const auto& a, const auto& b) { return a.granted_at < b.granted_at; });
    std::int64_t highest = 0;  // of those that had been granted when this one was asked for
    std::size_t ended = 0;
    for (const auto& one : taken) {
      while (ended < by_end.size() && by_end[ended].granted_at < one.asked_at) {
        highest = std::max(highest, by_end[ended++].token);
      }
      if (one.token <= highest) ++count;
    }
    std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
    const auto is_equal = [](const auto& a, const auto& b) { return a.token == b.token; };
    return count + (std::adjacent_find(taken.begin(), taken.end(), is_equal) == taken.end() ? 0 : 1);
  }

 private:
  void run(const Ensemble& ensemble, const std::stop_token& stop) {
    std::unique_ptr<TokenSource> source;
    while (!stop.stop_requested()) {
      try {
        if (!source) source = open_at(ensemble, "/load?session_timeout=2s&timeout=2s");
        const auto asked_at = BootClock::now();
        const auto grant = source->wait_acquire(resource_, Holder::random(),
                                                {.ttl = long_ttl, .wait = Ms{2'000}, .stop = stop});
        if (!grant) {
          source.reset();
          continue;
        }
        {
          const std::scoped_lock lock{mutex_};
          taken_.push_back({grant->claim.token.value(), asked_at, BootClock::now()});
        }
        (void)source->release(grant->claim);
      } catch (const Unavailable&) {
      } catch (const OutcomeUnknown&) {
      }
    }
  }

  const Resource resource_;
  std::mutex mutex_;
  std::vector<Taken> taken_;
  std::vector<std::jthread> threads_;
};

TEST(Quorum, LeadersKilledUnderLoadNeverMakeTokensFall) {
  const int kills = std::max(2, test::scaled(30));
  Ensemble ensemble;
  std::vector<std::unique_ptr<Load>> loads;
  for (int i = 0; i < 2; ++i) loads.push_back(std::make_unique<Load>(ensemble, fmt::format("load/{}", i), 3));
  int odds = 0;
  for (int i = 0; i < kills; ++i) {
    const auto before = loads[0]->count() + loads[1]->count();
    auto& leader = ensemble.leader();
    odds += mismatches(leader);
    leader.kill();
    // Work goes on without it.
    ASSERT_TRUE(eventually([&] { return loads[0]->count() + loads[1]->count() > before + 4; }))
        << "kill " << i << told_of(ensemble, "/load/locks/load/0");
    leader.start();
    ensemble.wait_until_serving();
  }
  for (auto& load : loads) {
    const auto taken = load->stop();
    EXPECT_GT(taken.size(), 0u);
    EXPECT_EQ(Load::disorders(taken), 0);
    RecordProperty("grants", static_cast<int>(taken.size()));
  }
  for (int i = 0; i < 3; ++i) odds += mismatches(ensemble.node(i));
  // Of 3.8.0 that is known; see docs/zookeeper.md.
  if (ensemble.node(0).ask("srvr").find("version: 3.8.") == std::string::npos) {
    EXPECT_EQ(odds, 0) << "transactions after which servers differed";
  }
  const auto source = open_at(ensemble, "/load");
  for (const auto* name : {"load/0", "load/1"}) {
    EXPECT_TRUE(take_at_last(*source, Resource{name}))
        << told_of(ensemble, fmt::format("/load/locks/{}", name));
  }
}

class Servers : public testing::Test {
 protected:
  static Ensemble& ensemble() {
    static Ensemble three;
    three.wait_until_serving();
    return three;
  }
  // The one to which the only client of a fresh URL is connected.
  static std::string url_of(EnsembleNode& node, const std::string& rest) {
    return fmt::format("zookeeper://127.0.0.1:{}{}", node.port(), rest);
  }
};

// The session lives on at another server, but in our eyes it was not connected in between.
TEST_F(Servers, ASessionThatMovesToAnotherServerHasLostItsLease) {
  auto& three = ensemble();
  Proxy first{three.node(0).port()};
  Proxy second{three.node(2).port()};
  second.set(Proxy::Way::closed);
  const auto source = open_source(Url::parse(fmt::format(
      "zookeeper://127.0.0.1:{},127.0.0.1:{}/moved?session_timeout=30s", first.port(), second.port())));
  auto lease = source->acquire(r, {.ttl = long_ttl});
  ASSERT_TRUE(lease);
  Session watcher{address_of(Url::parse(three.url())), Ms{20'000}};
  watcher.wait_until_connected();
  const auto owner = [&](const Resource& resource) {
    const auto path = "/moved/locks/" + resource.name();
    const auto names = watcher.get_children(path).children;
    return names.empty() ? 0 : watcher.exists(path + "/" + names[0]).stat.ephemeral_owner;
  };
  const auto session = owner(r);
  EXPECT_NE(session, 0);
  second.set(Proxy::Way::open);
  first.set(Proxy::Way::closed);
  EXPECT_TRUE(eventually([&] { return lease->lost().stop_requested(); }));
  EXPECT_EQ(source->renew(lease->claim(), long_ttl), Renewal::lost);
  EXPECT_EQ(lease->release(), Release::not_held);
  const auto next = take_at_last(*source, r);
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, lease->claim().token);
  EXPECT_TRUE(eventually([&] { return owner(r) == session; }));  // it is the same session
}

TEST_F(Servers, WithoutAQuorumNothingIsGrantedAndWithOneAgainTokensGoOn) {
  auto& three = ensemble();
  const auto source = open_at(three, "/quorum?session_timeout=4s&timeout=2s");
  auto lease = acquire_at_last(*source, r);
  ASSERT_TRUE(lease);
  three.node(0).kill();
  three.node(1).kill();
  EXPECT_TRUE(eventually([&] { return lease->lost().stop_requested(); }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW((void)source->try_acquire(Resource{"other"}, Holder{"b"}, long_ttl), Unavailable);
    EXPECT_THROW((void)source->draw(), Error);
  }
  EXPECT_NE(source->renew(lease->claim(), long_ttl), Renewal::renewed);
  three.node(0).start();
  three.node(1).start();
  three.wait_until_serving();
  const auto next = take_at_last(*source, r);
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, lease->claim().token);
}

// The leader is stopped, not dead: another is elected, and what the old one still believes grants nothing.
// Answers whether the holder had been told of its loss when its successor was granted the lock.
bool stop_leader(Ensemble& three) {
  auto& leader = three.leader();
  const auto believer = open_source(Url::parse(
      fmt::format("zookeeper://127.0.0.1:{}/stopped?session_timeout=4s&timeout=2s", leader.port())));
  auto lease = acquire_at_last(*believer, r);
  if (!lease) throw std::runtime_error{"no lease in time"};
  leader.pause();
  const auto source = open_at(three, "/stopped?session_timeout=4s&timeout=2s");
  const auto next = take_at_last(*source, r);
  const bool was_in_time = lease->lost().stop_requested();
  leader.resume();
  three.wait_until_serving();
  EXPECT_TRUE(eventually([&] { return lease->lost().stop_requested(); }));
  EXPECT_EQ(lease->release(), Release::not_held);
  const auto last = take_at_last(*believer, Resource{"accounts/43"});
  if (!next || !last) throw std::runtime_error{"no grant in time"};
  EXPECT_GT(next->claim.token, lease->claim().token);
  EXPECT_GT(last->claim.token, next->claim.token);
  return was_in_time;
}

// Where our own process stands still it is told later, but not each time.
TEST_F(Servers, AStoppedLeaderGrantsNothingAndTokensGoOnWithTheNext) {
  bool was_in_time = false;
  for (int i = 0; i < 5 && !was_in_time; ++i) was_in_time = stop_leader(ensemble());
  EXPECT_TRUE(was_in_time);
}

// A session is with one server: where that hangs, the connection counts as lost, and its leases with it, well
// before the ensemble gives their locks to others. Those of other connections go on, and so does the source.
TEST_F(Servers, AHungServerEndsTheLeasesOfItsOwnConnectionsInTime) {
  auto& three = ensemble();
  auto& leader = three.leader();
  auto& hung = &leader == &three.node(0) ? three.node(1) : three.node(0);
  auto& well = &leader == &three.node(2) ? three.node(1) : three.node(2);
  zoo_deterministic_conn_order(1);
  const auto hosts = fmt::format("127.0.0.1:{},127.0.0.1:{}", hung.port(), leader.port());
  const auto here = open_source(Url::parse("zookeeper://" + hosts + "/hung"));
  const auto there = open_source(Url::parse(url_of(well, "/hung")));
  auto lease = here->acquire(r, {.ttl = Ms{10'000}});
  auto other = there->acquire(Resource{"other"}, {.ttl = Ms{10'000}});
  ASSERT_TRUE(lease && other);
  hung.pause();
  const auto next = there->wait_acquire(r, Holder::random(), {.ttl = Ms{10'000}, .wait = long_ttl});
  EXPECT_TRUE(lease->lost().stop_requested()) << "before anybody else had the lock";
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, lease->claim().token);
  EXPECT_TRUE(take_at_last(*here, Resource{"more"})) << "by another server";
  EXPECT_FALSE(other->lost().stop_requested());
  hung.resume();
  zoo_deterministic_conn_order(0);
  three.wait_until_serving();
}

}  // namespace
}  // namespace fenceguard::zookeeper
