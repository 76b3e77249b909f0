#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "adapters/zookeeper/fences/storage.hpp"
#include "guard/lease.hpp"
#include "guard/support/wait_for.hpp"
#include "tests/conformance/fence_calls.hpp"
#include "tests/process/proxy.hpp"
#include "tests/zookeeper/guard/space.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::unique_ptr<Storage> open(const std::string& url, const StorageOptions& options = {}) {
  return zookeeper::open_storage(Url::parse(url), options);
}

TEST(ZooKeeperStorage, InitCreatesTheNamespaceAndNeverLowersItsFloor) {
  const auto storage = open(shared_ensemble().url("/storage/init"));
  EXPECT_FALSE(storage->initialises_itself());
  EXPECT_EQ(storage->objects(), nullptr);
  EXPECT_NE(storage->own_source(), nullptr);
  EXPECT_EQ(storage->fences().status().state, StoreState::uninitialised);
  EXPECT_THAT(storage->fences().status().reason, HasSubstr("fenceguard fence init"));
  EXPECT_THROW((void)advance(*storage, claim_of("r", 5)), Unavailable);
  EXPECT_THROW((void)show(*storage, "r"), Unavailable);
  EXPECT_EQ(init(*storage, 10), 10);
  EXPECT_EQ(storage->fences().status().state, StoreState::ready);
  EXPECT_EQ(storage->fences().status().floor, 10);
  EXPECT_EQ(init(*storage, 3), 10);
  EXPECT_EQ(advance(*storage, claim_of("r", 10)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim_of("r", 11)).verdict, Verdict::admitted);
  EXPECT_EQ(init(*storage, 20), 20);
  EXPECT_EQ(show(*storage, "r").highest(), 20);
}

TEST(ZooKeeperStorage, ADamagedFloorIsNotInitialisedAway) {
  Space space{shared_ensemble(), 7};
  const auto storage = open(space.url());
  (void)space.session()->set(space.root() + "/floor", "seven");
  EXPECT_THROW((void)init(*storage, 100), Unavailable);
  EXPECT_THROW((void)advance(*storage, claim_of("r", 500)), Unavailable);
  EXPECT_EQ(space.get(space.root() + "/floor").data, "seven");
  wait_until([&] { return storage->fences().status().state == StoreState::failed; });
}

TEST(ZooKeeperStorage, ARevokedFenceRefusesItsTokenAndALeaseThatHadNotAdvancedYet) {
  Space space;
  const auto storage = open(space.url(), {.jump_max = 1'000});
  ASSERT_EQ(advance(*storage, claim_of("r", 5)).verdict, Verdict::admitted);
  EXPECT_TRUE(revoke(*storage, "r").record->closed);
  EXPECT_EQ(advance(*storage, claim_of("r", 5)).verdict, Verdict::stale);
  EXPECT_EQ(revoke(*storage, "r", claim_of("r", 8, "next")).record,
            (Fence{Token{8}, Holder{"next"}, std::nullopt, true}));
  EXPECT_EQ(advance(*storage, claim_of("r", 8, "next")).verdict, Verdict::stale);
  EXPECT_THROW((void)revoke(*storage, "r", claim_of("r", 5'000)), Implausible) << "absurdly high";
  EXPECT_EQ(show(*storage, "r").record->token, Token{8});
  EXPECT_EQ(advance(*storage, claim_of("r", 9)).verdict, Verdict::admitted);
  EXPECT_FALSE(show(*storage, "r").record->closed);
  EXPECT_EQ(revoke(*storage, "none"), FenceView{});
  EXPECT_TRUE(revoke(*storage, "new", claim_of("new", 3)).record->closed);
}

TEST(ZooKeeperStorage, CompactionFoldsIdleFencesIntoTheFloorAndNoOthers) {
  Space space;
  const auto storage = open(space.url());
  constexpr int idle = 1'200;  // more than one step takes
  for (int i = 1; i <= idle; ++i)
    (void)space.session()->begin_create(space.client().paths().fence(Resource{fmt::format("idle/{}", i)}),
                                        fmt::format("{} - open h", i), zookeeper::Mode::persistent);
  ASSERT_EQ(advance(*storage, claim_of("live", 5'000)).verdict, Verdict::admitted);
  wait_until(
      [&] { return list(*storage, {.prefix = "", .after = "", .limit = 2'000}).entries.size() == idle + 1; });
  const auto done = compact(*storage, 1'001);
  EXPECT_EQ(done.dropped, 1'000);
  EXPECT_EQ(done.floor, 1'000);
  EXPECT_FALSE(show(*storage, "idle/1000").record);
  EXPECT_TRUE(show(*storage, "idle/1001").record);
  EXPECT_TRUE(show(*storage, "live").record);
  EXPECT_EQ(advance(*storage, claim_of("idle/7", 1'000)).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim_of("idle/7", 1'001)).verdict, Verdict::admitted);
  EXPECT_EQ(compact(*storage, 1'001).dropped, 0);
}

TEST(ZooKeeperStorage, ARebaseSetsAFenceAlsoWhereItIsDamagedAndKeepsANoteOfIt) {
  Space space;
  const auto storage = open(space.url());
  const auto path = space.client().paths().fence(Resource{"r"});
  ASSERT_EQ(advance(*storage, claim_of("r", 50)).verdict, Verdict::admitted);
  EXPECT_EQ(rebase(*storage, "r", 5).record, (Fence{Token{5}, Holder{}, std::nullopt, true}));
  EXPECT_EQ(advance(*storage, claim_of("r", 5, "")).verdict, Verdict::stale);
  EXPECT_EQ(advance(*storage, claim_of("r", 6)).verdict, Verdict::admitted);
  (void)space.session()->set(path, "damaged");
  EXPECT_THROW((void)advance(*storage, claim_of("r", 7)), Unavailable);
  EXPECT_EQ(rebase(*storage, "r", 9).record->token, Token{9});
  EXPECT_EQ(rebase(*storage, "gone", 3).record->token, Token{3});
  const auto notes = space.session()->get_children(space.root() + "/rebased").children;
  EXPECT_EQ(notes.size(), 3u);
  const auto first =
      *std::ranges::min_element(notes, {}, [](const auto& note) { return note.substr(note.size() - 10); });
  EXPECT_THAT(space.get(space.root() + "/rebased/" + first).data,
              testing::AllOf(HasSubstr("'r'"), HasSubstr("50 - open h"), HasSubstr("to 5 by ann")));
}

// What a client sends, in bytes: its reads of fences among them.
class Meter {
 public:
  Proxy proxy{shared_ensemble().node(0).port(),
              [this](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (direction == Proxy::Direction::to_server) sent_ += piece.size();
                return piece.size();
              }};
  // Of function.
  std::size_t sent(const std::function<void()>& function) {
    const auto before = sent_.load();
    function();
    return sent_ - before;
  }

 private:
  std::atomic<std::size_t> sent_{0};
};

// All are read, one by one, neither when the storage is opened nor for each absurd token, but once for many.
TEST(ZooKeeperStorage, AbsurdTokensAreNotRefusedByALookAtEveryFenceEach) {
  Space space;
  zookeeper::Guard others{space.client()};
  constexpr int fences = 1'000;
  for (int i = 0; i < fences; ++i)
    ASSERT_EQ(others.advance(claim_of("r" + std::to_string(i), 1'000 + i)).verdict, Verdict::admitted);
  Meter meter;
  std::unique_ptr<Storage> storage;
  const auto opening =
      meter.sent([&] { storage = open(space.url_by(meter.proxy.port()), {.jump_max = 1'000'000}); });
  EXPECT_LT(opening, 10'000u);
  const auto refusals = meter.sent([&] {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 8; ++caller) {
      callers.emplace_back([&] {
        for (int i = 0; i < 5; ++i)
          EXPECT_THROW((void)advance(*storage, claim_of("new", INT64_MAX - i)), Implausible);
      });
    }
  });
  EXPECT_LT(refusals, 200'000u) << "the reads of all fences are 40,000 bytes and more";
  EXPECT_FALSE(show(*storage, "new").record);
  // Plausible is what others' tokens make plausible, to the last one.
  // On a busy machine looks are dear, and 'not known for now' may come first.
  wait_until([&] {
    try {
      (void)advance(*storage, claim_of("new", 1'999 + 1'000'001));
      ADD_FAILURE() << "an absurd token was admitted";
    } catch (const Unavailable&) {
      return false;
    } catch (const Implausible&) {
    }
    return true;
  });
  EXPECT_EQ(advance(*storage, claim_of("new", 1'999 + 1'000'000)).verdict, Verdict::admitted);
}

// As a guard of an older version leaves it, which raises fences and knows of no mark.
TEST(ZooKeeperStorage, TooLowAMarkRefusesNothingPlausibleAndIsRaised) {
  Space space;
  const auto older = space.client().paths().fence(Resource{"older"});
  zookeeper::Guard maker{space.client()};
  ASSERT_EQ(maker.advance(claim_of("a", 10)).verdict, Verdict::admitted);
  zookeeper::Client client{space.url()};
  zookeeper::Guard guard{client, {.jump_max = 1'000'000}};
  ASSERT_EQ(space.session()->create(older, "5000000000 - open h").code, zookeeper::Code::ok);
  EXPECT_EQ(guard.advance(claim_of("b", 5'000'500'000)).verdict, Verdict::admitted);
  ASSERT_EQ(space.session()->set(older, "9000000000 - open h").code, zookeeper::Code::ok);
  zookeeper::Client client_after{space.url()};
  zookeeper::Guard after{client_after, {.jump_max = 1'000'000}};
  EXPECT_THROW((void)after.advance(claim_of("c", INT64_MAX)), Implausible);
  EXPECT_EQ(space.get(space.root() + "/highest").data, "9000000000");
}

// A fence rises, not so far that the mark would be lifted, while the mark is lowered after a rebase.
TEST(ZooKeeperStorage, AFenceThatRisesWhileTheMarkIsLoweredIsNotLeftFarAboveIt) {
  constexpr std::int64_t absurd = 1'000'000'000'000;
  Space space;
  zookeeper::Guard other{space.client()};
  ASSERT_EQ(other.advance(claim_of("a", absurd)).verdict, Verdict::admitted);
  std::atomic<bool> is_rebased{false}, is_raised{false};
  Proxy proxy{shared_ensemble().node(0).port(),
              [&](std::size_t, Proxy::Direction way, std::string_view piece) {
                if (way != Proxy::Direction::to_server) return piece.size();
                if (is_rebased && piece.find("/highest") != piece.npos && !is_raised.exchange(true))
                  (void)other.advance(claim_of("b", absurd + 5));
                if (piece.find("/rebased/") != piece.npos) is_rebased = true;
                return piece.size();
              }};
  zookeeper::Client client{space.url_by(proxy.port())};
  (void)zookeeper::rebase(client, {Resource{"a"}, Token{10}, "ann"});
  EXPECT_TRUE(is_raised);
  EXPECT_EQ(space.fence(Resource{"b"}).highest(), absurd + 5);
  EXPECT_GE(std::stoll(space.get(space.root() + "/highest").data), absurd);
}

// Many callers at once, as at the first start of a version that keeps a mark.
TEST(ZooKeeperStorage, AMissingMarkIsMadeByOneLookForAllThatNeedIt) {
  Space space;
  zookeeper::Guard others{space.client()};
  for (int i = 0; i < 1'000; ++i)
    ASSERT_EQ(others.advance(claim_of("r" + std::to_string(i), 1'000 + i)).verdict, Verdict::admitted);
  ASSERT_EQ(space.session()->remove(space.root() + "/highest").code, zookeeper::Code::ok);
  Meter meter;
  const auto storage = open(space.url_by(meter.proxy.port()));
  const auto sent = meter.sent([&] {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 8; ++i) {
      callers.emplace_back([&, i] {
        const auto resource = "r" + std::to_string(i);
        EXPECT_EQ(advance(*storage, claim_of(resource, 5'000)).verdict, Verdict::admitted);
      });
    }
  });
  EXPECT_LT(sent, 80'000u) << "the reads of all fences are 40,000 bytes and more";
}

// Guards that know nothing of each other raise fences at the same time, some of them far.
TEST(ZooKeeperStorage, HighestTokenDecidesWhatIsImplausible) {
  Space space;
  std::vector<std::jthread> raisers;
  for (int i = 0; i < 4; ++i) {
    raisers.emplace_back([&space, i] {
      zookeeper::Client client{space.url()};
      zookeeper::Guard guard{client};
      for (int step = 1; step <= 25; ++step) {
        const auto token = 50'000LL * step + i;
        EXPECT_EQ(guard.advance(claim_of("r" + std::to_string(i), token)).verdict, Verdict::admitted);
      }
    });
  }
  raisers.clear();
  const auto storage = open(space.url(), {.jump_max = 1'000'000});
  const auto highest = 50'000LL * 25 + 3;
  EXPECT_THROW((void)advance(*storage, claim_of("s", highest + 1'000'001)), Implausible);
  EXPECT_EQ(advance(*storage, claim_of("s", highest + 1'000'000)).verdict, Verdict::admitted);
  // Neither a lease that is closed nor what is set by hand, up or down, is forgotten.
  const auto leased = highest + 2'000'000;
  EXPECT_TRUE(revoke(*storage, "t", claim_of("t", leased)).record->closed);
  EXPECT_EQ(advance(*storage, claim_of("u", leased + 1'000'000)).verdict, Verdict::admitted);
  EXPECT_EQ(rebase(*storage, "v", 900'000'000).record->token, Token{900'000'000});
  EXPECT_EQ(advance(*storage, claim_of("w", 901'000'000)).verdict, Verdict::admitted);
  for (const auto* resource : {"u", "v", "w"}) (void)rebase(*storage, resource, 5);
  const auto after = open(space.url(), {.jump_max = 1'000'000});
  EXPECT_THROW((void)advance(*after, claim_of("x", leased + 1'000'001)), Implausible);
  EXPECT_EQ(advance(*after, claim_of("x", leased + 1'000'000)).verdict, Verdict::admitted);
}

// As in a namespace that is older than the mark, or whose mark somebody deleted.
TEST(ZooKeeperStorage, AMarkThatIsMissingIsMadeFromTheFences) {
  Space space;
  zookeeper::Guard guard{space.client()};
  ASSERT_EQ(guard.advance(claim_of("a", 10'000'000)).verdict, Verdict::admitted);
  for (int round = 1; round <= 2; ++round) {
    (void)space.session()->remove(space.root() + "/highest");
    ASSERT_EQ(guard.advance(claim_of("b", 10 * round)).verdict, Verdict::admitted);
    const auto storage = open(space.url(), {.jump_max = 100});
    EXPECT_EQ(advance(*storage, claim_of("c", 10'000'000 + 50 * round)).verdict, Verdict::admitted);
    EXPECT_THROW((void)advance(*storage, claim_of("c", 20'000'000)), Implausible);
  }
}

TEST(ZooKeeperStorage, DamagedFenceAffectsOnlyItsResourceAndCanBeRepaired) {
  Space space;
  zookeeper::Guard before{space.client()};
  ASSERT_EQ(before.advance(claim_of("sound", 5)).verdict, Verdict::admitted);
  ASSERT_EQ(space.session()->create(space.client().paths().fence(Resource{"r"}), "damaged").code,
            zookeeper::Code::ok);
  const auto storage = open(space.url(), {.jump_max = 100});
  EXPECT_EQ(storage->fences().status().state, StoreState::ready);
  EXPECT_EQ(storage->fences().status().highest, 5);
  EXPECT_EQ(advance(*storage, claim_of("sound", 6)).verdict, Verdict::admitted);
  EXPECT_THROW((void)advance(*storage, claim_of("sound", 500)), Implausible);
  EXPECT_EQ(list(*storage, {}).entries.size(), 1u);
  EXPECT_THAT([&] { (void)show(*storage, "r"); }, ThrowsMessage<Unavailable>(HasSubstr("fence rebase")));
  EXPECT_THROW((void)advance(*storage, claim_of("r", 7)), Unavailable);
  EXPECT_EQ(init(*storage, 3), 3);
  EXPECT_EQ(rebase(*storage, "r", 9).record->token, Token{9});
  EXPECT_EQ(advance(*storage, claim_of("r", 10)).verdict, Verdict::admitted);
}

TEST(ZooKeeperStorage, AnInspectorLooksAndChangesNothing) {
  Space space;
  const auto storage = open(space.url());
  ASSERT_EQ(advance(*storage, claim_of("r", 50)).verdict, Verdict::admitted);
  const auto inspector = open(space.url(), {.mode = StorageOptions::Mode::inspect});
  EXPECT_EQ(inspector->own_source(), nullptr);
  EXPECT_EQ(inspector->fences().status().highest, 50);
  EXPECT_EQ(inspector->fences().status().resources, 1);
  EXPECT_EQ(show(*inspector, "r").record->token, Token{50});
  EXPECT_THROW((void)advance(*inspector, claim_of("r", 51)), Unavailable);
  EXPECT_THROW((void)revoke(*inspector, "r"), Unavailable);
  EXPECT_THROW((void)compact(*inspector, 100), Unavailable);
  EXPECT_THROW((void)init(*inspector, 100), Unavailable);
  EXPECT_THROW((void)rebase(*inspector, "r", 1), Unavailable);
  EXPECT_EQ(show(*storage, "r").record->token, Token{50});
}

TEST(ZooKeeperStorage, TheOwnSourceDrawsAboveEverythingAndTellsWhatIsLive) {
  Space space;
  const auto storage = open(space.url());
  auto& source = *storage->own_source();
  const auto drawn = source.draw();
  EXPECT_EQ(init(*storage, drawn.value()), drawn.value());
  auto lease = source.acquire(Resource{"r"}, {.ttl = std::chrono::seconds{20}});
  ASSERT_TRUE(lease);
  EXPECT_EQ(advance(*storage, lease->claim()).verdict, Verdict::admitted);
  const auto lowest = source.lowest_live();
  ASSERT_TRUE(lowest);
  EXPECT_EQ(compact(*storage, lowest->value()).dropped, 0) << "what is held is not folded";
  EXPECT_EQ(advance(*storage, lease->claim()).verdict, Verdict::admitted);
}

TEST(ZooKeeperStorage, AnEnsembleThatCannotBeReachedIsUnavailableAtOnceAndLater) {
  EXPECT_THAT([] { (void)open(fmt::format("zookeeper://127.0.0.1:{}/x?timeout=500ms", free_port())); },
              ThrowsMessage<Unavailable>(HasSubstr("no server")));
  Ensemble ensemble{1};
  Space space{ensemble};
  const auto storage = open(space.url("?timeout=3s"));
  ensemble.node(0).kill();
  EXPECT_THROW((void)advance(*storage, claim_of("r", 5)), Error);
  wait_until([&] { return storage->fences().status().state == StoreState::failed; });
  ensemble.node(0).start();
  ensemble.wait_until_serving();
  wait_until([&] { return storage->fences().status().state == StoreState::ready; });
  std::optional<Verdict> verdict;
  wait_until([&] {
    try {
      verdict = advance(*storage, claim_of("r", 6)).verdict;
    } catch (const Error&) {
      // Too slow for its time-out.
    }
    return verdict.has_value();
  });
  EXPECT_EQ(verdict, Verdict::admitted);
}

}  // namespace
}  // namespace fenceguard::test
