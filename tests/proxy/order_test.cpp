// What the lane is for: whatever the upstream and the clients do, the tokens that take effect never fall.
//
// Clients side by side write to a few resources under tokens that rise; the upstream delays, drops, resets
// and forgets to answer. Its own log tells what it applied, in order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

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

  [[nodiscard]] bool has_all() const { return admitted > 0 && unknown > 0 && refused > 0; }
};

double seconds_of(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>{duration}.count();
}

std::string now_in_seconds() {
  return std::to_string(seconds_of(std::chrono::steady_clock::now().time_since_epoch()));
}

// When its client sent a request of which the upstream has this head.
double sent_at(const std::string& head) {
  constexpr std::string_view name = "\r\nSent-At: ";
  return std::stod(head.substr(head.find(name) + name.size()));
}

// What the upstream applied, in order, but for writes that it let lie for longer than the settle time before
// it applied them behind a higher token: the guard promises nothing of an upstream that stands still for so
// long.
std::vector<UpstreamEvent> applied_in_time(const Upstream& upstream, std::chrono::milliseconds settle) {
  std::map<std::int64_t, double> latest;  // by connection: when the request on it was sent
  std::map<std::string, std::int64_t> highest;
  std::vector<UpstreamEvent> applied;
  int left_out = 0;
  for (auto& event : upstream.events()) {
    if (event.kind == "seen") latest[event.connection] = sent_at(event.head);
    if (event.kind != "applied") continue;
    const auto token = std::stoll(event.token.value());
    auto& mark = highest[event.path];
    if (token < mark && event.time - latest.at(event.connection) > seconds_of(settle)) {
      ++left_out;
      continue;
    }
    mark = std::max<std::int64_t>(mark, token);
    applied.push_back(std::move(event));
  }
  if (left_out > 0) std::cout << left_out << " writes came after the settle time\n";
  return applied;
}

TEST(OrderTest, TokensThatTakeEffectNeverFallUnderEveryUpstreamFault) {
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
  // While the upstream stands still everything is closed soon: then it takes more rounds.
  const auto last = std::chrono::steady_clock::now() + 60s;
  const auto work = [&](unsigned number) {
    std::mt19937 random{seed + number};
    for (int round = 0; round < scaled(120) || (!tally.has_all() && std::chrono::steady_clock::now() < last);
         ++round) {
      const auto target = "/r" + std::to_string(random() % 24);
      const bool is_new = random() % 3 == 0;
      const auto token = is_new ? ++last_token : std::max<std::int64_t>(1, last_token);
      const std::string holder = "h" + std::to_string(token);
      const auto response = guarded.send("PUT", target,
                                         {{"Fencing-Token", std::to_string(token)},
                                          {"Fencing-Holder", holder},
                                          {"Sent-At", now_in_seconds()},
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
  EXPECT_THAT(fallen(applied_in_time(upstream, options.lane.settle)), IsEmpty());
  EXPECT_THAT(upstream.anomalies(), IsEmpty());
  EXPECT_GT(tally.admitted, 0);
  EXPECT_GT(tally.unknown, 0);
  EXPECT_GT(tally.refused, 0);
  EXPECT_EQ(guarded.service().lanes().in_flight, 0);
  EXPECT_EQ(guarded.service().lanes().waiting, 0);
}

}  // namespace
}  // namespace fenceguard::test
