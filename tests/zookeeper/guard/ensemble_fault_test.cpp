// Servers that are killed, stopped, or too few: no admission is reported that is not there.

#include <array>
#include <thread>

#include "tests/conformance/scale.hpp"
#include "tests/zookeeper/guard/history.hpp"

namespace fenceguard::test {
namespace {

using std::chrono::steady_clock;

// Services that write all the time, until they are stopped.
class Load {
 public:
  Load(Space& space, History& history, unsigned seed) : space_{space}, history_{history} {
    for (unsigned i = 0; i < services; ++i)
      threads_.emplace_back([this, i, seed](const std::stop_token& stop) { write(i, seed + i, stop); });
  }

  // Returns once so many more writes were acknowledged.
  void wait_for(std::size_t more) {
    const auto wanted = history_.acknowledged() + more;
    const auto deadline = steady_clock::now() + std::chrono::seconds{60};
    while (history_.acknowledged() < wanted) {
      if (steady_clock::now() > deadline) throw std::runtime_error{"nothing is written any more"};
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
  }

 private:
  static constexpr unsigned services = 4;

  void write(unsigned number, unsigned seed, const std::stop_token& stop) {
    std::mt19937 random{seed};
    zookeeper::Client client{space_.url("?timeout=5s")};
    zookeeper::Guard guard{client};
    std::int64_t token = numbers_.draw(random);
    for (int step = 0; !stop.stop_requested(); ++step) {
      if (random() % 4 == 0) token = numbers_.draw(random);
      const auto claim = claim_of(random() % 2 == 0 ? "a" : "b", token, fmt::format("h{}", number));
      history_.act(guard, claim, fmt::format("{}-{}", number, step));
    }
  }

  Space& space_;
  History& history_;
  Numbers numbers_;
  std::vector<std::jthread> threads_;
};

// A holder of the first number, who comes back in the middle of it all. True once he was told that he is
// stale.
bool is_refused_as_stale(Space& space) {
  zookeeper::Client client{space.url("?timeout=5s")};
  zookeeper::Guard guard{client};
  const auto deadline = steady_clock::now() + std::chrono::seconds{60};
  while (steady_clock::now() < deadline) {
    try {
      const auto path = space.data("late");
      return guard.write(claim_of("a", 1, "late"), {zookeeper::create(path, "")}).ruling.verdict ==
             Verdict::stale;
    } catch (const Error&) {
      // Nobody answers at the moment.
    }
  }
  return false;
}

void wait_until_it_follows(const EnsembleNode& node) {
  const auto deadline = steady_clock::now() + std::chrono::seconds{60};
  while (node.ask("srvr").find("\nMode: follower") == std::string::npos) {
    if (steady_clock::now() > deadline) throw std::runtime_error{"the old leader does not follow"};
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
}

class BrokenEnsemble : public testing::Test {
 protected:
  const unsigned seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 4);
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(seed)};
  Ensemble ensemble;
  Space space{ensemble};
  History history{space, {"a", "b"}};
};

TEST_F(BrokenEnsemble, TheLeaderIsKilledAgainAndAgainUnderLoad) {
  const int kills = scaled(5);
  {
    Load load{space, history, seed};
    for (int i = 0; i < kills; ++i) {
      load.wait_for(10);
      auto& leader = ensemble.leader();
      leader.kill();
      load.wait_for(10);
      leader.start();
      ensemble.wait_until_serving();
    }
  }
  history.verify();
  RecordProperty("acknowledged", static_cast<int>(history.acknowledged()));
  RecordProperty("unknown", static_cast<int>(history.unknown()));
}

TEST_F(BrokenEnsemble, TheLeaderIsStoppedAndGoesOnLaterAsIfNothingHadHappened) {
  zookeeper::Client client{space.url()};
  zookeeper::Guard first{client};
  ASSERT_EQ(first.advance(claim_of("a", 2, "first")).verdict, Verdict::admitted);
  {
    Load load{space, history, seed};
    for (int i = 0; i < 2; ++i) {
      load.wait_for(10);
      auto& leader = ensemble.leader();
      leader.pause();
      load.wait_for(10);
      EXPECT_TRUE(is_refused_as_stale(space));
      leader.resume();
      // At first it still says that it leads, until it cuts its clients.
      wait_until_it_follows(leader);
      ensemble.wait_until_serving();
    }
    load.wait_for(10);
  }
  history.verify();
}

TEST_F(BrokenEnsemble, WithoutAQuorumNothingIsAdmittedAndWithItAllIsThere) {
  zookeeper::Client client{space.url("?timeout=1s&session_timeout=60s")};
  zookeeper::Guard guard{client};
  const auto begin = steady_clock::now();
  const auto limit = std::chrono::seconds{60};
  for (int i = 0; history.acknowledged() < 1 && steady_clock::now() < begin + limit; ++i)
    history.act(guard, claim_of("a", 1), fmt::format("before-{}", i));
  ASSERT_EQ(history.acknowledged(), 1u);
  ensemble.node(0).kill();
  ensemble.node(1).kill();
  for (int i = 0; i < 3; ++i) history.act(guard, claim_of("a", 1), fmt::format("without-{}", i));
  EXPECT_EQ(history.acknowledged(), 1u);
  EXPECT_EQ(history.refused(), 0u) << "a refusal is an answer, and there is nobody to give one";
  EXPECT_THROW((void)guard.advance(claim_of("a", 2)), Error);
  ensemble.node(0).start();
  ensemble.node(1).start();
  ensemble.wait_until_serving();
  const auto deadline = steady_clock::now() + limit;
  for (int i = 0; history.acknowledged() < 2 && steady_clock::now() < deadline; ++i)
    history.act(guard, claim_of("a", 3), fmt::format("after-{}", i));
  EXPECT_EQ(history.acknowledged(), 2u);
  history.verify();
}

}  // namespace
}  // namespace fenceguard::test
