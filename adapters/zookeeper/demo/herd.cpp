#include <fmt/format.h>

#include <algorithm>

#include "adapters/zookeeper/demo/crowd.hpp"
#include "adapters/zookeeper/demo/stories.hpp"

namespace fenceguard::zookeeper::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr std::size_t clients = 200;
constexpr int hand_overs = 10;
constexpr int told_one_by_one = 3;
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

TaleEvent woken_event(std::string what, std::size_t woken, bool is_herd) {
  return {.who = holder_lane,
          .what = std::move(what),
          .where = waiters_lane,
          .answer = fmt::format("{} woken, 1 gets it", woken),
          .tone = is_herd ? Tone::bad : Tone::good};
}

Count count_wake_ups(Stage& stage, const Server& server, Crowd& crowd, bool is_herd) {
  Count count;
  const auto fired_before = server.figure(fired_watches);
  std::size_t untold = 0;
  for (int i = 1; i <= hand_overs; ++i) {
    const auto woken = crowd.hand_over();
    count.least = std::min(count.least, woken);
    count.most = std::max(count.most, woken);
    count.total += woken;
    if (i <= told_one_by_one)
      stage.note(woken_event("gives the lock back, and asks for it again", woken, is_herd));
    else
      untold += woken;
  }
  auto rest =
      woken_event(fmt::format("the same {} times more", hand_overs - told_one_by_one), untold, is_herd);
  rest.answer = fmt::format("{} woken in all", untold);
  stage.note(std::move(rest));
  count.by_server = server.figure(fired_watches) - fired_before;
  stage.note({.who = waiters_lane,
              .what = "how many watches did the server fire?",
              .where = server_lane,
              .answer = fmt::format("mntr: {}", count.by_server)});
  return count;
}

}  // namespace

TaleEnd herd(Stage& stage, bool guarded) {
  const Server server{stage};
  const auto crowd = guarded ? queue_of(stage, server, clients) : herd_of(stage, server, clients);
  crowd->line_up();
  stage.note(
      {.who = waiters_lane,
       .what = guarded ? fmt::format("{} sessions create a sequential node each, and watch the one before",
                                     clients)
                       : fmt::format("{} sessions try to create one ephemeral node", clients),
       .where = server_lane,
       .answer = guarded ? "the first holds the lock" : fmt::format("1 has it, {} watch it", clients - 1),
       .tone = Tone::token});
  const auto count = count_wake_ups(stage, server, *crowd, !guarded);
  const auto expected = guarded ? 1 : clients - 1;
  TaleEnd end;
  end.facts = {
      {"clients", std::to_string(clients)},         {"hand_overs", std::to_string(hand_overs)},
      {"woken_least", std::to_string(count.least)}, {"woken_most", std::to_string(count.most)},
      {"woken", std::to_string(count.total)},       {"woken_by_server", std::to_string(count.by_server)}};
  end.is_as_it_must_be = count.least == expected && count.most == expected &&
                         count.by_server == static_cast<std::int64_t>(count.total);
  end.outcome = fmt::format("{} clients, {} hand-overs: {} woken at each, {} in all, of which {} could go on",
                            clients, hand_overs,
                            count.least == count.most ? std::to_string(count.most)
                                                      : fmt::format("{} to {}", count.least, count.most),
                            count.total, hand_overs);
  return end;
}

}  // namespace fenceguard::zookeeper::demos
