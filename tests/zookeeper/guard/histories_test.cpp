// Many services on a few resources, with fences that are compacted under them: whether the guarantees held is
// read from the data.

#include <array>
#include <thread>

#include "tests/conformance/scale.hpp"
#include "tests/process/eventually.hpp"
#include "tests/zookeeper/guard/history.hpp"

namespace fenceguard::test {
namespace {

constexpr std::size_t services = 5;

// The tokens that are held, as the lock service knows them. A service that stopped holds none, and goes on
// writing all the same.
class LiveTokens {
 public:
  explicit LiveTokens(const Numbers& numbers) : numbers_{numbers} {
    for (auto& one : held_) one = INT64_MAX;
  }
  void set(std::size_t service, std::int64_t token) { held_.at(service) = token; }
  [[nodiscard]] Token lowest() const {
    auto lowest = numbers_.next();
    for (const auto& one : held_) lowest = std::min(lowest, one.load());
    return Token{lowest};
  }

 private:
  const Numbers& numbers_;
  std::array<std::atomic<std::int64_t>, services> held_{};
};

TEST(ZooKeeperHistories, NoStaleWriteLandsHoweverServicesAndCompactionsInterleave) {
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 3);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Space space;
  History history{space, {"a", "d"}};
  Numbers numbers;
  LiveTokens live{numbers};
  std::atomic<bool> is_over{false};
  std::atomic<std::int64_t> dropped{0};
  std::vector<std::jthread> compacting;
  for (int i = 0; i < 2; ++i) {
    compacting.emplace_back([&] {
      zookeeper::Client client{space.url()};
      while (!is_over) dropped += zookeeper::compact(client, live.lowest()).dropped;
    });
  }
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < services; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random{seed + static_cast<unsigned>(i)};
      zookeeper::Client client{space.url()};
      zookeeper::Guard guard{client, {.jump_max = 0, .cache_entries = i == 0 ? 1u : 100u}};
      std::int64_t token = numbers.draw(random);
      const auto act = [&](int step) {
        const auto claim = claim_of(random() % 2 == 0 ? "a" : "d", token, fmt::format("h{}", i));
        history.act(guard, claim, fmt::format("{}-{}", i, step));
      };
      for (int step = 0; step < scaled(120); ++step) {
        const auto what = random() % 8;
        if (what < 3) {
          live.set(i, numbers.next());
          token = numbers.draw(random);
        }
        // Stopped for longer than its lease, and does not know.
        if (what == 3) live.set(i, INT64_MAX);
        act(step);
      }
      // Without its lease and silent until a fence has come and gone; then it writes once more.
      numbers.skip();
      live.set(i, INT64_MAX);
      EXPECT_TRUE(eventually([&] { return dropped > 0; })) << "no fence came and went";
      for (int step = scaled(120); step < scaled(130); ++step) act(step);
    });
  }
  threads.clear();
  is_over = true;
  compacting.clear();
  history.verify();
  EXPECT_GT(history.acknowledged(), 0u);
  EXPECT_GT(history.refused(), 0u);
}

}  // namespace
}  // namespace fenceguard::test
