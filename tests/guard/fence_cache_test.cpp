#include "guard/store/fence_cache.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <thread>

#include "tests/judge_cases.hpp"

namespace fenceguard {
namespace {

Fence fence_of(std::int64_t token, const std::string& holder = "h") {
  return {Token{token}, Holder{holder}, std::nullopt, false};
}

TEST(FenceCache, GivesBackWhatWasPutWhateverItsLength) {
  FenceCache cache{1'000};
  for (const std::size_t name_bytes : {1, 20, 71, 72, 73, 512}) {
    for (const std::size_t holder_bytes : {0, 1, 32, 128}) {
      const Resource resource{std::string(name_bytes, 'r')};
      for (const auto sequence :
           {std::optional<Sequence>{}, std::optional{Sequence{0}}, std::optional{Sequence{7}}}) {
        for (const bool closed : {false, true}) {
          const Fence fence{Token{9223372036854775807}, Holder{std::string(holder_bytes, 'h')}, sequence,
                            closed};
          cache.put(resource, fence);
          ASSERT_EQ(cache.find(resource), fence) << name_bytes << " " << holder_bytes;
        }
      }
    }
  }
}

TEST(FenceCache, AnswersEveryCaseOfTheSharedTable) {
  for (const auto& expected : test::judge_cases()) {
    if (!expected.view.record) continue;
    const Claim claim = expected.claim("accounts/42");
    FenceCache cache{1};
    cache.put(claim.resource, *expected.view.record);
    const auto answer = cache.ask(claim, expected.view.floor);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->verdict, expected.verdict) << "line " << expected.line;
    EXPECT_EQ(answer->highest, expected.view.highest()) << "line " << expected.line;
  }
}

TEST(FenceCache, ErasedAndClearedFencesAreGone) {
  FenceCache cache{10};
  cache.put(Resource{"a"}, fence_of(1));
  cache.put(Resource{"b"}, fence_of(2));
  cache.erase(Resource{"a"});
  cache.erase(Resource{"never"});
  EXPECT_FALSE(cache.find(Resource{"a"}));
  EXPECT_EQ(cache.find(Resource{"b"}), fence_of(2));
  EXPECT_EQ(cache.size(), 1u);
  cache.clear();
  EXPECT_FALSE(cache.find(Resource{"b"}));
  EXPECT_EQ(cache.size(), 0u);
  cache.put(Resource{"a"}, fence_of(3));
  EXPECT_EQ(cache.find(Resource{"a"}), fence_of(3));
}

TEST(FenceCache, OfNoEntriesCachesNothing) {
  FenceCache cache{0};
  cache.put(Resource{"a"}, fence_of(1));
  EXPECT_FALSE(cache.find(Resource{"a"}));
  EXPECT_EQ(cache.size(), 0u);
}

// What it shows: resources that pass by once do not drive out the one that is in use.
// How: it is asked for after each of 10,000 others, and put again, as a store would, where it had to give
// way.
TEST(FenceCache, StaysWithinItsBoundAndKeepsWhatIsUsed) {
  FenceCache cache{100};
  const Resource hot{"hot"};
  int missed = 0;
  for (int i = 0; i < 10'000; ++i) {
    cache.put(Resource{"cold/" + std::to_string(i)}, fence_of(i + 1));
    if (!cache.find(hot)) {
      ++missed;
      cache.put(hot, fence_of(1));
    }
    ASSERT_LE(cache.size(), cache.capacity());
  }
  EXPECT_LE(missed, 10);
  EXPECT_GE(cache.size(), 90u);
}

// What it shows: a fence in the cache is always the last one put, never another's.
// How: random calls beside a map that forgets nothing; what the cache still knows must be what the map says.
TEST(FenceCache, NeverAnswersWithAnOldFenceOrAnothers) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random{seed};
  const auto below = [&](unsigned limit) {
    return std::uniform_int_distribution<unsigned>{0, limit - 1}(random);
  };
  FenceCache cache{200};
  std::map<Resource, Fence> model;
  for (int i = 0; i < 200'000; ++i) {
    const unsigned number = below(400);
    const Resource resource{"r/" + std::string(number % 120, 'x') + std::to_string(number)};
    if (below(10) == 0) {
      cache.erase(resource);
      model.erase(resource);
    } else if (below(2) == 0) {
      const auto fence = fence_of(i + 1, std::string(below(129), 'h'));
      cache.put(resource, fence);
      model.insert_or_assign(resource, fence);
    } else if (const auto found = cache.find(resource)) {
      ASSERT_TRUE(model.contains(resource));
      ASSERT_EQ(*found, model.at(resource));
    }
  }
}

TEST(FenceCache, IsUsedByManyThreadsAtOnce) {
  FenceCache cache{64};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      const std::string holder = "h" + std::to_string(t);
      for (int i = 1; i < 5'000; ++i) {
        const Resource resource{"r" + std::to_string(i % 100)};
        cache.put(resource, fence_of(i, holder));
        const Claim claim{resource, Token{i}, Holder{holder}, std::nullopt};
        (void)cache.ask(claim, 0);
        if (i % 7 == 0) cache.erase(resource);
      }
    });
  }
  threads.clear();
  EXPECT_LE(cache.size(), 64u);
}

}  // namespace
}  // namespace fenceguard
