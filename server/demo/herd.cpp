#include <fmt/format.h>

#include <algorithm>

#include "server/demo/crowd.hpp"
#include "server/demo/scenarios.hpp"

namespace fenceguard::demo {
namespace {

constexpr std::size_t clients = 200;
constexpr int hand_overs = 10;
constexpr int noted_one_by_one = 3;
constexpr const char* holder_lane = "the holder";
constexpr const char* waiters_lane = "the others";
constexpr const char* server_lane = "ZooKeeper";

// The server's own count of the watches that it fired because a node was gone.
constexpr const char* fired_watches = "sum_node_deleted_watch_count";

struct Count {
  std::size_t least = clients;
  std::size_t most = 0;
  std::size_t total = 0;
  std::int64_t by_server = 0;
};

void note_woken(Harness& harness, std::string what, std::string answer, bool is_herd) {
  harness.note({.actor = holder_lane,
                .what = std::move(what),
                .target = waiters_lane,
                .answer = std::move(answer),
                .tone = is_herd ? Tone::bad : Tone::good});
}

Count count_wake_ups(Harness& harness, const ZooKeeperServer& server, Crowd& crowd, bool is_herd) {
  Count count;
  const auto fired_before = server.figure(fired_watches);
  std::size_t rest = 0;
  for (int i = 1; i <= hand_overs; ++i) {
    const auto woken = crowd.hand_over();
    count.least = std::min(count.least, woken);
    count.most = std::max(count.most, woken);
    count.total += woken;
    if (i > noted_one_by_one)
      rest += woken;
    else
      note_woken(harness, "gives the lock back, and asks for it again",
                 fmt::format("{} woken, 1 gets it", woken), is_herd);
  }
  note_woken(harness, fmt::format("the same {} times more", hand_overs - noted_one_by_one),
             fmt::format("{} woken in all", rest), is_herd);
  count.by_server = server.figure(fired_watches) - fired_before;
  harness.note({.actor = waiters_lane,
                .what = "how many watches did the server fire?",
                .target = server_lane,
                .answer = fmt::format("mntr: {}", count.by_server)});
  return count;
}

Outcome run(Harness& harness, bool guarded) {
  const ZooKeeperServer server{harness};
  const auto crowd = guarded ? queue_of(harness, server, clients) : herd_of(harness, server, clients);
  harness.restart_clock();
  crowd->line_up();
  harness.note(
      {.actor = waiters_lane,
       .what = guarded ? fmt::format("{} sessions create a sequential node each, and watch the one before",
                                     clients)
                       : fmt::format("{} sessions try to create one ephemeral node", clients),
       .target = server_lane,
       .answer = guarded ? "the first holds the lock" : fmt::format("1 has it, {} watch it", clients - 1),
       .tone = Tone::token});
  const auto count = count_wake_ups(harness, server, *crowd, !guarded);
  const auto expected = guarded ? 1 : clients - 1;
  Outcome outcome;
  outcome.facts = {
      {"clients", std::to_string(clients)},         {"hand_overs", std::to_string(hand_overs)},
      {"woken_least", std::to_string(count.least)}, {"woken_most", std::to_string(count.most)},
      {"woken", std::to_string(count.total)},       {"woken_by_server", std::to_string(count.by_server)}};
  outcome.as_expected = count.least == expected && count.most == expected &&
                        count.by_server == static_cast<std::int64_t>(count.total);
  outcome.sentence = fmt::format(
      "{} clients, {} hand-overs: {} woken at each, {} in all, of which {} could go on", clients, hand_overs,
      count.least == count.most ? std::to_string(count.most)
                                : fmt::format("{} to {}", count.least, count.most),
      count.total, hand_overs);
  return outcome;
}

}  // namespace

Scenario herd() {
  return {.name = "herd",
          .summary = "200 clients wait for one node (ZooKeeper), and all of them wake at every release",
          .opening =
              "200 clients, each with a session of its own with a real ZooKeeper server, want one lock. "
              "First it is one ephemeral node that all try to create and else watch; then each "
              "has a sequential node and watches the one before it, as zookeeper:// does. Wake-ups are "
              "counted by the clients and by the server.",
          .lanes = {holder_lane, waiters_lane, server_lane},
          .run = run,
          .guard_line = Scenario::GuardLine::none};
}

}  // namespace fenceguard::demo
