// What the lane is for: whatever the upstream and the clients do, the tokens that take effect never fall.
//
// Clients side by side write to a few resources under tokens that rise; the upstream delays, drops, resets
// and forgets to answer. Its own log tells what it applied, in order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream.hpp"

namespace fenceguard::test {
namespace {

using testing::IsEmpty;

constexpr std::array faults{
    "",           "",      "",         "hold=40ms",   "hold=250ms", "hold-answer=250ms",
    "drop",       "reset", "never",    "apply-reset", "status=503", "status=202",
    "status=409", "half",  "early=409"};

struct Tally {
  std::atomic<int> admitted{0};
  std::atomic<int> unknown{0};
  std::atomic<int> refused{0};
};

TEST(OrderTest, TokensThatTakeEffectNeverFallWhateverTheUpstreamDoes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Upstream upstream;
  GuardedOptions options;
  options.lane.settle = 2s * slowdown;
  options.lane.upstream_timeout = 150ms;
  options.lane.forward_claim = true;
  options.threads = 2;
  Guarded guarded{upstream.url(), options};
  std::atomic<std::int64_t> last_token{0};
  Tally tally;
  const auto work = [&](unsigned number) {
    std::mt19937 random{seed + number};
    for (int round = 0; round < scaled(120); ++round) {
      const auto target = "/r" + std::to_string(random() % 24);
      const bool is_new = random() % 3 == 0;
      const auto token = is_new ? ++last_token : std::max<std::int64_t>(1, last_token);
      const std::string holder = "h" + std::to_string(token);
      const auto response = guarded.send("PUT", target,
                                         {{"Fencing-Token", std::to_string(token)},
                                          {"Fencing-Holder", holder},
                                          {"Upstream-Do", faults[random() % faults.size()]}},
                                         std::to_string(token));
      if (verdict(response) == "admitted") ++tally.admitted;
      if (verdict(response) == "unknown") ++tally.unknown;
      if (verdict(response) == "stale" || verdict(response) == "unavailable") ++tally.refused;
    }
  };
  std::vector<std::jthread> clients;
  for (unsigned number = 0; number < 6; ++number) clients.emplace_back(work, number);
  clients.clear();
  EXPECT_THAT(fallen(upstream.applied()), IsEmpty());
  EXPECT_THAT(upstream.anomalies(), IsEmpty());
  EXPECT_GT(tally.admitted, 0);
  EXPECT_GT(tally.unknown, 0);
  EXPECT_GT(tally.refused, 0);
  EXPECT_EQ(guarded.service().lanes().in_flight, 0);
  EXPECT_EQ(guarded.service().lanes().waiting, 0);
}

}  // namespace
}  // namespace fenceguard::test
