#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "adapters/etcd/fences/fence_admin.hpp"
#include "adapters/etcd/fences/storage.hpp"
#include "adapters/etcd/wire/base64.hpp"
#include "guard/support/wait_for.hpp"
#include "tests/conformance/fence_calls.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/etcd/guard/space.hpp"
#include "tests/process/eventually.hpp"
#include "tests/process/loopback.hpp"
#include "tests/process/proxy.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;

Claim claim(const std::string& resource, std::int64_t token, const std::string& holder = "h") {
  return claim_of(token, holder, resource);
}

class EtcdFenceStore : public testing::Test {
 protected:
  [[nodiscard]] Url url() const {
    return Url::parse(shared_cluster().url("/" + space_.address().prefix + "?timeout=5s"));
  }
  [[nodiscard]] std::unique_ptr<Storage> open(const StorageOptions& options = {}) const {
    return etcd::open_storage(url(), options);
  }

  EtcdSpace space_{shared_cluster()};
};

TEST_F(EtcdFenceStore, NamespaceWithoutAFloorIsUnavailableAndNamesTheCommand) {
  space_.remove(space_.keys().floor());
  const auto storage = open({.initialise = true});
  EXPECT_FALSE(storage->initialises_itself());
  EXPECT_EQ(storage->objects(), nullptr);
  EXPECT_EQ(storage->fences().status().state, StoreState::uninitialised);
  EXPECT_THAT(storage->fences().status().reason, HasSubstr("fence init"));
  EXPECT_EQ(kind_of([&] { return advance(*storage, claim("a", 5)); }), FaultKind::unavailable);
  EXPECT_EQ(kind_of([&] { return show(*storage, "a"); }), FaultKind::unavailable);
  EXPECT_EQ(kind_of([&] { return revoke(*storage, "a", claim("a", 5)); }), FaultKind::unavailable);
  EXPECT_EQ(kind_of([&] { return rebase(*storage, "a", 5); }), FaultKind::unavailable);
  EXPECT_EQ(kind_of([&] { return compact(*storage, 5); }), FaultKind::unavailable);
  EXPECT_EQ(space_.fence("a") + space_.get(space_.keys().floor()), "");
}

TEST_F(EtcdFenceStore, InitRaisesTheFloorAndNeverLowersIt) {
  space_.remove(space_.keys().floor());
  const auto storage = open();
  EXPECT_EQ(init(*storage, 7), 7);
  EXPECT_EQ(storage->fences().status().state, StoreState::ready);
  EXPECT_EQ(init(*storage, 3), 7);
  EXPECT_EQ(init(*storage, 9), 9);
  EXPECT_EQ(advance(*storage, claim("a", 9)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("a", 10)).verdict, Verdict::admitted);
  EXPECT_EQ(storage->fences().status().floor, 9);
  space_.set(space_.keys().floor(), "abc");
  EXPECT_EQ(kind_of([&] { return init(*storage, 20); }), FaultKind::unavailable);
  EXPECT_EQ(space_.get(space_.keys().floor()), "abc");
}

// All are read, page by page, neither when the storage is opened nor for each absurd token, but once for
// many.
TEST_F(EtcdFenceStore, AbsurdTokensAreNotRefusedByALookAtEveryFenceEach) {
  etcd::Guard others{space_.client()};
  constexpr int fences = 1'000;
  for (int i = 0; i < fences; ++i)
    ASSERT_EQ(others.advance(claim("r" + std::to_string(i), 1'000 + i)).verdict, Verdict::admitted);
  std::atomic<std::size_t> received{0};
  Proxy proxy{shared_cluster().member(0).port(),
              [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (direction != Proxy::Direction::to_server) received += piece.size();
                return piece.size();
              }};
  const auto far =
      Url::parse(shared_cluster().url_of_port(proxy.port(), "/" + space_.address().prefix + "?timeout=5s"));
  const auto storage = etcd::open_storage(far, {.jump_max = 1'000'000});
  EXPECT_LT(received, 60'000u) << "all fences are 100,000 bytes and more";
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(kind_of([&] { return advance(*storage, claim("new", INT64_MAX - i)); }),
                  FaultKind::implausible);
      }
    });
  }
  callers.clear();
  EXPECT_LT(received, 1'000'000u);
  EXPECT_EQ(space_.fence("new"), "");
  // Plausible is what others' tokens make plausible, to the last one. On a busy machine looks are dear, and
  // 'not known for now' may come first.
  auto kind = FaultKind::unavailable;
  wait_until([&] {
    kind = kind_of([&] { return advance(*storage, claim("new", 1'999 + 1'000'001)); });
    return kind != FaultKind::unavailable;
  });
  EXPECT_EQ(kind, FaultKind::implausible);
  EXPECT_EQ(advance(*storage, claim("new", 1'999 + 1'000'000)).verdict, Verdict::admitted);
}

// As a guard of an older version leaves it, which raises fences and knows of no mark.
TEST_F(EtcdFenceStore, TooLowAMarkRefusesNothingPlausibleAndIsRaised) {
  const auto storage = open({.jump_max = 1'000'000});
  ASSERT_EQ(advance(*storage, claim("a", 10)).verdict, Verdict::admitted);
  space_.set(space_.keys().fence(Resource{"older"}), "5000000000 - open h");
  EXPECT_EQ(advance(*storage, claim("b", 5'000'500'000)).verdict, Verdict::admitted);
  space_.set(space_.keys().fence(Resource{"older"}), "9000000000 - open h");
  const auto after = open({.jump_max = 1'000'000});
  EXPECT_EQ(kind_of([&] { return advance(*after, claim("c", INT64_MAX)); }), FaultKind::implausible);
  EXPECT_EQ(space_.get(space_.keys().highest()), "9000000000");
}

// A fence rises, not so far that the mark would be lifted, while the mark is lowered after a rebase.
TEST_F(EtcdFenceStore, AFenceThatRisesWhileTheMarkIsLoweredIsNotLeftFarAboveIt) {
  constexpr std::int64_t absurd = 1'000'000'000'000;
  etcd::Guard other{space_.client()};
  ASSERT_EQ(other.advance(claim("a", absurd)).verdict, Verdict::admitted);
  std::atomic<bool> is_set{false}, is_raised{false};
  const auto mark_put = R"("request_put":{"key":")" + etcd::to_base64(space_.keys().highest());
  Proxy proxy{shared_cluster().member(0).port(),
              [&](std::size_t, Proxy::Direction way, std::string_view piece) {
                if (way != Proxy::Direction::to_server) return piece.size();
                if (piece.find(mark_put) != piece.npos && !is_raised.exchange(true))
                  (void)other.advance(claim("b", absurd + 5));
                return piece.size();
              }};
  etcd::Client client{space_.address_by(proxy.port())};
  (void)etcd::FenceAdmin{client}.rebase({Resource{"a"}, Token{10}, "ann"});
  EXPECT_TRUE(is_raised);
  EXPECT_EQ(space_.fence("b"), "1000000000005 - open h");
  EXPECT_GE(std::stoll(space_.get(space_.keys().highest())), absurd);
}

// Many callers at once, as at the first start of a version that keeps a mark.
TEST_F(EtcdFenceStore, AMissingMarkIsMadeByOneLookForAllThatNeedIt) {
  etcd::Guard others{space_.client()};
  for (int i = 0; i < 1'000; ++i)
    ASSERT_EQ(others.advance(claim("r" + std::to_string(i), 1'000 + i)).verdict, Verdict::admitted);
  space_.remove(space_.keys().highest());
  std::atomic<std::size_t> received{0};
  Proxy proxy{shared_cluster().member(0).port(),
              [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (direction != Proxy::Direction::to_server) received += piece.size();
                return piece.size();
              }};
  const auto storage = etcd::open_storage(
      Url::parse(shared_cluster().url_of_port(proxy.port(), "/" + space_.address().prefix + "?timeout=10s")),
      {});
  std::vector<std::jthread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      EXPECT_EQ(advance(*storage, claim("r" + std::to_string(i), 5'000)).verdict, Verdict::admitted);
    });
  }
  callers.clear();
  EXPECT_LT(received, 350'000u) << "all fences are 150,000 bytes and more";
}

// Guards that know nothing of each other raise fences at the same time, some of them far.
TEST_F(EtcdFenceStore, HighestTokenDecidesWhatIsImplausible) {
  std::vector<std::jthread> raisers;
  for (int i = 0; i < 4; ++i) {
    raisers.emplace_back([this, i] {
      etcd::Client client{space_.address("?timeout=20s")};
      etcd::Guard guard{client};
      for (int step = 1; step <= 25; ++step) {
        const auto token = 50'000LL * step + i;
        EXPECT_EQ(guard.advance(claim("r" + std::to_string(i), token)).verdict, Verdict::admitted);
      }
    });
  }
  raisers.clear();
  const auto storage = open({.jump_max = 1'000'000});
  const auto highest = 50'000LL * 25 + 3;
  const auto is_implausible = [](Storage& at, const char* resource, std::int64_t token) {
    return kind_of([&] { return advance(at, claim(resource, token)); }) == FaultKind::implausible;
  };
  EXPECT_TRUE(is_implausible(*storage, "s", highest + 1'000'001));
  EXPECT_EQ(advance(*storage, claim("s", highest + 1'000'000)).verdict, Verdict::admitted);
  // Neither a lease that is closed nor what is set by hand, up or down, is forgotten.
  const auto leased = highest + 2'000'000;
  EXPECT_TRUE(revoke(*storage, "t", claim("t", leased)).record->closed);
  EXPECT_EQ(advance(*storage, claim("u", leased + 1'000'000)).verdict, Verdict::admitted);
  EXPECT_EQ(rebase(*storage, "v", 900'000'000).record->token, Token{900'000'000});
  EXPECT_EQ(advance(*storage, claim("w", 901'000'000)).verdict, Verdict::admitted);
  for (const auto* resource : {"u", "v", "w"}) (void)rebase(*storage, resource, 5);
  const auto after = open({.jump_max = 1'000'000});
  EXPECT_TRUE(is_implausible(*after, "x", leased + 1'000'001));
  EXPECT_EQ(advance(*after, claim("x", leased + 1'000'000)).verdict, Verdict::admitted);
}

// As in a namespace that is older than the mark, or whose mark somebody deleted.
TEST_F(EtcdFenceStore, AMarkThatIsMissingIsMadeFromTheFences) {
  etcd::Guard guard{space_.client()};
  ASSERT_EQ(guard.advance(claim("a", 10'000'000)).verdict, Verdict::admitted);
  for (int round = 1; round <= 2; ++round) {
    space_.remove(space_.address().prefix + "/highest");
    ASSERT_EQ(guard.advance(claim("b", 10 * round)).verdict, Verdict::admitted);
    const auto storage = open({.jump_max = 100});
    EXPECT_EQ(advance(*storage, claim("c", 10'000'000 + 50 * round)).verdict, Verdict::admitted);
    EXPECT_EQ(kind_of([&] { return advance(*storage, claim("c", 20'000'000)); }), FaultKind::implausible);
  }
}

TEST_F(EtcdFenceStore, ARevokeCutsOffALeaseThatHasNotAdvancedYetUnlessItIsAbsurd) {
  const auto storage = open({.jump_max = 1'000});
  EXPECT_EQ(revoke(*storage, "new", claim("new", 8)).record, (Fence{Token{8}, Holder{"h"}, {}, true}));
  (void)advance(*storage, claim("a", 9));
  EXPECT_EQ(revoke(*storage, "a", claim("a", 12, "next")).record,
            (Fence{Token{12}, Holder{"next"}, {}, true}));
  EXPECT_EQ(advance(*storage, claim("a", 12, "next")).verdict, Verdict::stale);
  EXPECT_EQ(revoke(*storage, "a", claim("a", 6)).record->token, Token{12});
  EXPECT_EQ(kind_of([&] { return revoke(*storage, "a", claim("a", INT64_MAX, "x")); }),
            FaultKind::implausible);
  EXPECT_EQ(space_.fence("a"), "12 - closed next");
  EXPECT_EQ(kind_of([&] { return advance(*storage, claim("b", 5'000)); }), FaultKind::implausible);
}

TEST_F(EtcdFenceStore, CompactedFencesAreInTheFloorAndRefuseAsBefore) {
  const auto storage = open();
  constexpr int count = 331;  // more than three steps
  for (int i = 1; i <= count; ++i)
    space_.set(space_.keys().fence(Resource{fmt::format("r/{}", i)}), fmt::format("{} - open h", i));
  space_.set(space_.keys().fence(Resource{"damaged"}), "x");
  const auto done = compact(*storage, 301);
  EXPECT_EQ(done.dropped, 300);
  EXPECT_EQ(done.floor, 300);
  EXPECT_EQ(space_.fence("r/300"), "");
  EXPECT_EQ(space_.fence("damaged"), "x");
  EXPECT_EQ(advance(*storage, claim("r/7", 7)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("r/7", 300)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("r/301", 301)).verdict, Verdict::admitted);
  EXPECT_EQ(advance(*storage, claim("r/7", 332)).verdict, Verdict::admitted);
  EXPECT_EQ(compact(*storage, 301).dropped, 0);
}

// What compaction does in several steps never opens a gap: writers go on meanwhile, stale ones and good ones.
TEST_F(EtcdFenceStore, CompactionLandsNoStaleWriteAndRefusesNoGoodOne) {
  const auto storage = open();
  constexpr int resources = 250;
  const auto name = [](int i) { return fmt::format("r/{}", i % resources); };
  for (int i = 0; i < resources; ++i)
    space_.set(space_.keys().fence(Resource{name(i)}), fmt::format("{} - open h", 1'000 + i));
  std::atomic<bool> is_over{false};
  std::atomic<int> admitted{0}, refused{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      etcd::Client client{space_.address()};
      etcd::Guard guard{client, 0, 16};
      for (int i = t; !is_over; i += 3) {
        if (guard.write(claim(name(i), 999), {etcd::put(space_.key(), "stale")}).is_done()) ++admitted;
      }
    });
  }
  std::int64_t token = 2'000;
  for (int round = 0; round < scaled(20); ++round) {
    (void)compact(*storage, token);
    for (int i = 0; i < resources; i += 7) {
      if (advance(*storage, claim(name(i), ++token)).verdict != Verdict::admitted) ++refused;
    }
  }
  is_over = true;
  threads.clear();
  EXPECT_EQ(admitted, 0);
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(space_.value(), "");
}

TEST_F(EtcdFenceStore, RebaseClosesAFenceAtItsNumberEvenADamagedOne) {
  const auto storage = open();
  (void)advance(*storage, claim("a", 500));
  EXPECT_EQ(rebase(*storage, "a", 10).record, (Fence{Token{10}, Holder{}, std::nullopt, true}));
  EXPECT_EQ(advance(*storage, claim("a", 10, "")).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim("a", 11)).verdict, Verdict::admitted);
  space_.set(space_.keys().fence(Resource{"a"}), "x");
  EXPECT_EQ(kind_of([&] { return show(*storage, "a"); }), FaultKind::unavailable);
  (void)rebase(*storage, "a", 20);
  EXPECT_EQ(advance(*storage, claim("a", 21)).verdict, Verdict::admitted);
  const auto records = space_.client().range(etcd::get_all(space_.keys().rebased(Resource{"a"}, ""))).found;
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].value, "from 500 to 10 by ann");
  EXPECT_EQ(records[1].value, "from none to 20 by ann");
  EXPECT_THAT(records[0].key, testing::MatchesRegex(".*/a/20..-..-..T..:..:..[.]...Z"));
}

// The fence rises between the look of a rebase and what it writes.
TEST_F(EtcdFenceStore, ARebaseDoesNotLowerWhatRoseWhileItWorked) {
  std::atomic<int> transactions{0};
  etcd::Guard other{space_.client()};
  (void)other.advance(claim("a", 500));
  Proxy proxy{shared_cluster().member(0).port(),
              [&](std::size_t, Proxy::Direction way, std::string_view piece) {
                if (way == Proxy::Direction::to_server && piece.find("/v3/kv/txn") != piece.npos &&
                    ++transactions == 2)
                  (void)other.advance(claim("a", 600));
                return piece.size();
              }};
  etcd::Client client{space_.address_by(proxy.port())};
  etcd::FenceAdmin admin{client};
  const auto fault = fault_of_call([&] { return admin.rebase({Resource{"a"}, Token{510}, "ann"}); });
  EXPECT_EQ(fault.kind, FaultKind::unavailable) << fault.message;
  EXPECT_THAT(fault.message, HasSubstr("600"));
  EXPECT_EQ(space_.fence("a"), "600 - open h");
  EXPECT_EQ(admin.rebase({Resource{"a"}, Token{510}, "ann"}).record->token, Token{510}) << "asked for anew";
}

// Grants and fences by one URL, as 'fence init' and 'fence compact' use them.
TEST_F(EtcdFenceStore, OwnSourceDrawsAboveTheFloorAndBoundsCompaction) {
  space_.remove(space_.keys().floor());
  const auto storage = open();
  auto& source = *storage->own_source();
  const auto grant = [&](const char* resource) {
    const auto got = source.try_acquire(Resource{resource}, Holder::random(), std::chrono::seconds{60});
    return std::get<Grant>(got).claim;
  };
  const auto before = grant("a");
  (void)init(*storage, source.draw().value());
  EXPECT_EQ(advance(*storage, before).verdict, Verdict::stale) << "granted before the fence was there";
  EXPECT_EQ(source.release(before), Release::released);
  const auto idle = grant("idle");
  EXPECT_EQ(advance(*storage, idle).verdict, Verdict::admitted);
  (void)source.release(idle);
  const auto held = grant("held");
  EXPECT_EQ(advance(*storage, held).verdict, Verdict::admitted);
  const auto lowest = source.lowest_live();
  ASSERT_TRUE(lowest);
  EXPECT_EQ(compact(*storage, lowest->value()).dropped, 1);
  EXPECT_EQ(advance(*storage, idle).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, held).verdict, Verdict::admitted);
  (void)source.release(held);
}

TEST_F(EtcdFenceStore, StatusFollowsTheCluster) {
  (void)open()->fences();
  space_.set(space_.keys().fence(Resource{"old"}), "7 - open h");
  const auto storage = open();
  EXPECT_EQ(storage->fences().status().highest, 7);
  (void)advance(*storage, claim("a", 9));
  wait_until([&] { return storage->fences().status().resources == 2; });
  EXPECT_EQ(storage->fences().status().highest, 9);
  space_.remove(space_.keys().floor());
  wait_until([&] { return storage->fences().status().state == StoreState::uninitialised; });
}

TEST(EtcdFenceStoreFault, AMemberThatGoesAndComesIsUnavailableMeanwhile) {
  EtcdCluster cluster{1};
  const auto storage = etcd::open_storage(Url::parse(cluster.url("?timeout=500ms")), {});
  (void)until_answered([&] { return init(*storage, 0); });
  (void)until_answered([&] { return advance(*storage, claim("a", 5)); });
  cluster.member(0).kill();
  EXPECT_EQ(kind_of([&] { return advance(*storage, claim("a", 6)); }), FaultKind::unavailable);
  wait_until([&] { return storage->fences().status().state == StoreState::failed; });
  cluster.member(0).start();
  wait_until([&] { return storage->fences().status().state == StoreState::ready; });
  EXPECT_EQ(until_answered([&] { return advance(*storage, claim("a", 4)); }).verdict, Verdict::stale);
  cluster.member(0).pause();
  EXPECT_EQ(kind_of([&] { return advance(*storage, claim("a", 7)); }), FaultKind::unknown);
  EXPECT_EQ(kind_of([&] { return show(*storage, "a"); }), FaultKind::unavailable);
  wait_until([&] { return storage->fences().status().state == StoreState::failed; });
  cluster.member(0).resume();
  wait_until([&] { return storage->fences().status().state == StoreState::ready; });
  const auto verdict = until_answered([&] { return advance(*storage, claim("a", 6)); }).verdict;
  const auto shown = until_answered([&] { return show(*storage, "a"); });
  EXPECT_EQ(verdict, shown.record->token == Token{7} ? Verdict::stale : Verdict::admitted);
}

TEST(EtcdFenceStoreFault, AClusterThatCannotBeReachedIsToldAtOnce) {
  const auto url = Url::parse(fmt::format("etcd://127.0.0.1:{}", free_port()));
  EXPECT_EQ(kind_of([&] { return etcd::open_storage(url, {}); }), FaultKind::unavailable);
}

// Eight calls are under way in a member that stands still, and the others wait for their turn.
TEST(EtcdFenceStoreFault, WhatIsOpenAtTheEndIsAnsweredAndWhatWasNeverSentAsNotDone) {
  EtcdCluster cluster{1};
  constexpr int calls = 20, threads = 8;
  std::vector<std::future<Fault>> endings;
  std::atomic<int> on_the_callers_thread{0}, transactions{0};
  Proxy proxy{cluster.member(0).port(), [&](std::size_t, Proxy::Direction way, std::string_view piece) {
                if (way == Proxy::Direction::to_server && piece.find("/v3/kv/txn") != piece.npos)
                  ++transactions;
                return piece.size();
              }};
  {
    const auto storage = etcd::open_storage(Url::parse(cluster.url_of_port(proxy.port(), "?timeout=6s")), {});
    (void)init(*storage, 0);
    (void)advance(*storage, claim("a", 1));
    cluster.member(0).pause();
    const auto before = transactions.load();
    const auto caller = std::this_thread::get_id();
    for (int i = 2; i < calls + 2; ++i) {
      auto ending = std::make_shared<std::promise<Fault>>();
      endings.push_back(ending->get_future());
      storage->fences().advance(claim("a", i), [&, caller, ending](Outcome<Ruling> outcome) {
        if (std::this_thread::get_id() == caller) ++on_the_callers_thread;
        ending->set_value(outcome.ok() ? Fault{FaultKind::invalid_input, "done"} : outcome.fault());
      });
    }
    wait_until([&] { return transactions > before; });
  }
  cluster.member(0).resume();
  int unknown = 0, never_sent = 0;
  for (auto& ending : endings) {
    const auto fault = ending.get();
    if (fault.kind == FaultKind::unknown) ++unknown;
    if (fault.kind == FaultKind::unavailable && fault.message.find("stopping") != std::string::npos)
      ++never_sent;
  }
  EXPECT_GE(unknown, 1);
  EXPECT_GE(never_sent, calls - threads);
  EXPECT_EQ(unknown + never_sent, calls);
  EXPECT_EQ(on_the_callers_thread, 0);
}

}  // namespace
}  // namespace fenceguard::test
