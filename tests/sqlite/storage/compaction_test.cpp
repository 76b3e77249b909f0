// Compaction into the floor, and the cache: whatever is dropped or evicted, no verdict changes for the worse.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

unsigned seed() {
  return static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 7);
}

// Sends many advances at once, so that they share commits, and waits for all.
class Advances {
 public:
  explicit Advances(const OpenStorage& storage) : storage_{storage} {}
  ~Advances() { wait(); }
  Advances(const Advances&) = delete;
  Advances& operator=(const Advances&) = delete;

  using Check = std::function<void(const Ruling&)>;
  void send(const Claim& claim, const Check& check = nullptr) {
    {
      const std::scoped_lock lock{mutex_};
      ++open_;
    }
    storage_.fences().advance(claim, [this, check](const Outcome<Ruling>& outcome) {
      if (outcome.ok() && check) check(outcome.value());
      const std::scoped_lock lock{mutex_};
      if (!outcome.ok()) ++faults_;
      if (--open_ == 0) done_.notify_all();
    });
  }
  void wait() {
    std::unique_lock lock{mutex_};
    done_.wait(lock, [this] { return open_ == 0; });
  }
  [[nodiscard]] int faults() const { return faults_; }

 private:
  const OpenStorage& storage_;
  std::mutex mutex_;
  std::condition_variable done_;
  int open_ = 0;
  int faults_ = 0;
};

class Compacting : public testing::Test {
 protected:
  TempDir folder_;
  const std::string path_ = folder_.file("fenceguard.db");
};

TEST_F(Compacting, OnlyRecordsBelowTheLowestLiveTokenAreFoldedIntoTheFloor) {
  const OpenStorage storage{path_};
  for (int token = 1; token <= 10; ++token)
    (void)storage.put(claim_of("r/" + std::to_string(token), token), "x");
  const auto compaction = storage.compact(6);
  EXPECT_EQ(compaction.dropped, 5);
  EXPECT_EQ(compaction.floor, 5);
  EXPECT_EQ(storage.status().floor, 5);
  EXPECT_EQ(storage.status().resources, 5);
  EXPECT_FALSE(storage.show("r/5").record);
  EXPECT_EQ(storage.show("r/6").record, fence_of(6));
  EXPECT_EQ(query(path_, "SELECT count(*) FROM fenceguard_fence"), "5");
  // Whoever finds no record is judged by the floor, the holder of the dropped record included.
  EXPECT_EQ(storage.put(claim_of("r/3", 3), "late").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage.put(claim_of("r/3", 5), "late").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage.put(claim_of("never/seen", 5), "late").ruling.verdict, Verdict::stale);
  EXPECT_EQ(storage.put(claim_of("r/3", 6), "next").ruling.verdict, Verdict::admitted);
  EXPECT_EQ(storage.put(claim_of("r/6", 6), "same").ruling.verdict, Verdict::admitted);
  EXPECT_EQ(storage.body("r/4"), "x");  // the data stays
}

TEST_F(Compacting, NothingToDropLeavesTheFloor) {
  const OpenStorage storage{path_};
  EXPECT_EQ(storage.compact(100).floor, 0);
  (void)storage.advance(claim_of("a", 5));
  EXPECT_EQ(storage.compact(5).dropped, 0);
  EXPECT_EQ(storage.status().floor, 0);
}

TEST_F(Compacting, ARevokedRecordIsRefusedAfterItWasDropped) {
  const OpenStorage storage{path_};
  (void)storage.advance(claim_of("a", 5, "x"));
  (void)storage.revoke("a");
  EXPECT_EQ(storage.compact(6).dropped, 1);
  EXPECT_EQ(storage.advance(claim_of("a", 5, "x")).verdict, Verdict::stale);
  EXPECT_EQ(storage.advance(claim_of("a", 6, "y")).verdict, Verdict::admitted);
}

// A record that came, went, and came again: who saw none at first finds the floor in its place.
TEST_F(Compacting, ARecordThatCameAndWentIsNotForgotten) {
  for (const std::size_t cache : {std::size_t{0}, std::size_t{1'000}}) {
    const OpenStorage storage{folder_.file(std::to_string(cache)), initialised(cache)};
    EXPECT_EQ(storage.put(claim_of("a", 10, "y"), "ten").ruling.verdict, Verdict::admitted);
    EXPECT_EQ(storage.compact(11).dropped, 1);
    EXPECT_EQ(storage.put(claim_of("a", 9, "x"), "late").ruling.verdict, Verdict::stale);
    EXPECT_EQ(storage.put(claim_of("a", 10, "y"), "late").ruling.verdict, Verdict::stale);
    EXPECT_EQ(storage.put(claim_of("a", 12, "z"), "twelve").ruling.verdict, Verdict::admitted);
    EXPECT_EQ(storage.compact(13).dropped, 1);
    EXPECT_EQ(storage.put(claim_of("a", 11, "y"), "late").ruling.verdict, Verdict::stale);
    EXPECT_EQ(storage.body("a"), "twelve");
  }
}

TEST_F(Compacting, ManyRecordsAreDroppedInSeveralSteps) {
  constexpr int records = 5'000;
  const OpenStorage storage{path_, initialised(100)};
  {
    Advances advances{storage};
    for (int i = 1; i <= records; ++i) advances.send(claim_of("r/" + std::to_string(i), i));
    advances.wait();
    ASSERT_EQ(advances.faults(), 0);
  }
  const auto compaction = storage.compact(records - 9);
  EXPECT_EQ(compaction.dropped, records - 10);
  EXPECT_EQ(compaction.floor, records - 10);
  EXPECT_EQ(storage.status().resources, 10);
  EXPECT_EQ(storage.list({"", "", 100}).entries.size(), 10u);
  EXPECT_EQ(storage.advance(claim_of("r/17", records - 10)).verdict, Verdict::stale);
}

// Writers draw rising tokens, and the lowest one in use bounds the compactions beside them. Nobody is refused
// who is still live, and nobody who was overtaken gets in.
TEST_F(Compacting, BesideConcurrentWritersNoStaleOneIsEverAdmitted) {
  constexpr int writers = 4;
  constexpr int resources = 20;
  const OpenStorage storage{path_, initialised(10)};
  std::mutex mutex;
  std::set<std::int64_t> live;
  std::int64_t next = 1;
  std::atomic<int> wrong{0};
  std::atomic<bool> is_over{false};
  const auto work = [&](unsigned number) {
    std::mt19937 random{seed() + number};
    const std::string holder = "h" + std::to_string(number);
    for (int turn = 0; turn < scaled(150); ++turn) {
      // A resource of the writer's own, so that nobody else overtakes it.
      const std::string resource = std::to_string(number) + "/" + std::to_string(random() % resources);
      std::int64_t token = 0;
      {
        const std::scoped_lock lock{mutex};
        token = *live.insert(++next).first;
      }
      if (storage.advance(claim_of(resource, token, holder)).verdict != Verdict::admitted) ++wrong;
      if (storage.put(claim_of(resource, token, holder), "x").ruling.verdict != Verdict::admitted) ++wrong;
      if (storage.put(claim_of(resource, token - 1, "late"), "y").ruling.verdict != Verdict::stale) ++wrong;
      const std::scoped_lock lock{mutex};
      live.erase(token);
    }
  };
  std::jthread compactor{[&] {
    while (!is_over) {
      std::int64_t lowest = 0;
      {
        const std::scoped_lock lock{mutex};
        lowest = live.empty() ? next + 1 : *live.begin();
      }
      (void)storage.compact(lowest);
    }
  }};
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < writers; ++i) threads.emplace_back(work, i);
  threads.clear();
  is_over = true;
  compactor.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(std::to_string(storage.status().resources),
            query(path_, "SELECT count(*) FROM fenceguard_fence"));
}

// A fence for each resource kept beside the storage in a map; the storage must answer as the map does.
class Model {
 public:
  Ruling judge_and_keep(const Claim& claim) {
    auto& record = fences_[claim.resource.name()];
    auto ruling = judge({record, floor}, claim);
    record = ruling.fence;
    return ruling;
  }
  std::int64_t floor = 0;

 private:
  std::map<std::string, std::optional<Fence>> fences_;
};

// 50,000 resources through a cache of 1,000 and one of none: every verdict is the model's, before and after
// the file was closed and opened again.
TEST_F(Compacting, EvictionNeverChangesAVerdict) {
  for (const std::size_t cache : {std::size_t{1'000}, std::size_t{0}}) {
    SCOPED_TRACE("cache " + std::to_string(cache) + ", seed " + std::to_string(seed()));
    std::mt19937 random{seed()};
    const int resources = scaled(50'000);
    constexpr int per_round = 1'000;
    const auto path = folder_.file(std::to_string(cache));
    Model model;
    std::atomic<int> wrong{0};
    for (int half = 0; half < 2; ++half) {
      const OpenStorage storage{path, initialised(cache)};
      Advances advances{storage};
      for (int round = 0; round < 3 * resources / per_round; ++round) {
        // Distinct ones, because the order of two calls at once is unknown; some hot, most cold.
        std::set<unsigned> numbers;
        while (numbers.size() < 100) numbers.insert(static_cast<unsigned>(random() % 200));
        while (numbers.size() < per_round)
          numbers.insert(static_cast<unsigned>(random() % static_cast<unsigned>(resources)));
        for (const auto number : numbers) {
          const auto claim = claim_of("r/" + std::to_string(number), 1 + static_cast<int>(random() % 50),
                                      random() % 2 == 0 ? "a" : "b");
          advances.send(claim, [&wrong, wanted = model.judge_and_keep(claim)](const Ruling& ruling) {
            if (ruling.verdict != wanted.verdict || ruling.highest != wanted.highest) ++wrong;
          });
        }
        advances.wait();
      }
      advances.wait();
      EXPECT_EQ(advances.faults(), 0);
    }
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace fenceguard::test
