#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "adapters/zookeeper/session.hpp"
#include "demo/kit/harness.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/zookeeper.hpp"
#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

using zookeeper::Code;
using zookeeper::Mode;
using zookeeper::Session;

constexpr std::size_t clients = 200;
constexpr int hand_overs = 10;
constexpr int noted_one_by_one = 3;
constexpr std::chrono::milliseconds session_timeout{30'000};
constexpr const char* lock = "/herd/lock";
constexpr const char* line = "/herd/line";
constexpr const char* holder_lane = "the holder";
constexpr const char* waiters_lane = "the others";
constexpr const char* server_lane = "ZooKeeper";

// The server's own count of the watches that it fired because a node was gone.
constexpr const char* fired_watches = "sum_node_deleted_watch_count";

// A recipe is one attempt of a client to get the lock: true if it has the lock now; otherwise the client
// watches what it waits for. node: the client's own node, empty while it has none.
using Recipe = bool (*)(Session& session, std::string& node, const Session::Watch& watch);

// One ephemeral node, which all clients try to create, and all but one then watch.
bool try_herd(Session& session, std::string& node, const Session::Watch& watch) {
  if (session.create(lock, "", Mode::ephemeral).code == Code::ok) {
    node = lock;
    return true;
  }
  if (session.exists(lock, watch).code != Code::ok)
    throw Unavailable("the lock was given back before its time");
  return false;
}

// A sequential node for each client, of which each client watches the one before its own:
// https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks
bool try_queue(Session& session, std::string& node, const Session::Watch& watch) {
  const auto prefix = std::string{line} + '/';
  if (node.empty()) node = session.create(prefix + "lock-", "", Mode::ephemeral_sequential).path;
  auto names = session.get_children(line).children;
  std::ranges::sort(names);
  const auto own = std::ranges::find(names, node.substr(prefix.size()));
  if (own == names.begin() && own != names.end()) return true;
  if (own == names.end() || session.exists(prefix + *(own - 1), watch).code != Code::ok)
    throw Unavailable("a node of the line is gone");
  return false;
}

// Many clients, each with a session of its own, that wait for one lock, and the count of their wake-ups.
class Crowd {
 public:
  // Returns once all of them are connected. REQUIRES: harness outlives it.
  Crowd(Harness& harness, const ZooKeeperServer& server, Recipe recipe)
      : harness_{harness}, recipe_{recipe}, nodes_(clients) {
    const auto address = zookeeper::address_of(Url::parse(server.url()));
    for (std::size_t i = 0; i < clients; ++i)
      sessions_.push_back(std::make_unique<Session>(address, session_timeout));
    for (const auto& session : sessions_) session->wait_until_connected();
    sessions_.front()->make_path(line);
  }

  // All clients ask for the lock; returns once one holds it and each of the others watches.
  void line_up() {
    for (std::size_t i = 0; i < clients; ++i) attempt(i);
  }

  // The holder gives the lock back and asks for it again, behind the clients that this woke. Returns how many
  // these were, at least as many as wake_ups.
  [[nodiscard]] std::size_t hand_over(std::size_t wake_ups) {
    const auto leaving = holder_.value();
    holder_.reset();
    if (sessions_[leaving]->remove(std::exchange(nodes_[leaving], {})).code != Code::ok)
      throw Unavailable("the holder's node was not there");
    harness_.wait_until([&] { return woken_count() >= wake_ups; }, "a wake-up of every watch");
    // An answer comes behind the events that were sent before it.
    for (auto& session : sessions_) (void)session->exists("/");
    const auto woken = take_woken();
    for (const auto client : woken) attempt(client);
    attempt(leaving);
    if (holder_ == leaving) throw Unavailable("no other client came to hold the lock");
    return woken.size();
  }

 private:
  void attempt(std::size_t client) {
    const auto note_wake_up = [this, client](bool gone) {
      if (!gone) return;
      const std::lock_guard guard{mutex_};
      woken_.push_back(client);
    };
    if (!recipe_(*sessions_[client], nodes_[client], note_wake_up)) return;
    if (holder_) throw Unavailable("two clients hold the lock");
    holder_ = client;
  }

  std::size_t woken_count() {
    const std::lock_guard guard{mutex_};
    return woken_.size();
  }
  std::vector<std::size_t> take_woken() {
    const std::lock_guard guard{mutex_};
    return std::exchange(woken_, {});
  }

  Harness& harness_;
  const Recipe recipe_;
  std::optional<std::size_t> holder_;
  std::vector<std::string> nodes_;  // of each client
  std::mutex mutex_;
  std::vector<std::size_t> woken_;
  std::vector<std::unique_ptr<Session>> sessions_;  // they end first: their watches write to woken_
};

struct Count {
  std::size_t least = clients;
  std::size_t most = 0;
  std::size_t total = 0;
  std::int64_t by_server = 0;
};

Count count_wake_ups(Harness& harness, const ZooKeeperServer& server, Crowd& crowd, std::size_t expected) {
  Count count;
  const auto tone = expected > 1 ? Tone::bad : Tone::good;
  const auto fired_before = server.figure(fired_watches);
  std::size_t rest = 0;
  for (int i = 1; i <= hand_overs; ++i) {
    const auto woken = crowd.hand_over(expected);
    count.least = std::min(count.least, woken);
    count.most = std::max(count.most, woken);
    count.total += woken;
    if (i > noted_one_by_one)
      rest += woken;
    else
      harness.note({holder_lane, "gives the lock back, and asks for it again", waiters_lane,
                    fmt::format("{} woken, 1 gets it", woken), tone});
  }
  harness.note({holder_lane, fmt::format("the same {} times more", hand_overs - noted_one_by_one),
                waiters_lane, fmt::format("{} woken in all", rest), tone});
  count.by_server = server.figure(fired_watches) - fired_before;
  harness.note({waiters_lane, "how many watches did the server fire?", server_lane,
                fmt::format("mntr: {}", count.by_server)});
  return count;
}

Outcome run(Harness& harness, bool guarded) {
  const ZooKeeperServer server{harness};
  Crowd crowd{harness, server, guarded ? try_queue : try_herd};
  harness.restart_clock();
  crowd.line_up();
  const std::size_t expected = guarded ? 1 : clients - 1;
  if (guarded)
    harness.note({waiters_lane,
                  fmt::format("{} sessions create a sequential node each, and watch the one before", clients),
                  server_lane, "the first holds the lock", Tone::token});
  else
    harness.note({waiters_lane, fmt::format("{} sessions try to create one ephemeral node", clients),
                  server_lane, fmt::format("1 has it, {} watch it", clients - 1), Tone::token});
  const auto [least, most, total, by_server] = count_wake_ups(harness, server, crowd, expected);
  const auto each = least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
  return {
      .as_expected = least == expected && most == expected && by_server == static_cast<std::int64_t>(total),
      .sentence =
          fmt::format("{} clients, {} hand-overs: {} woken at each, {} in all, of which {} could go on",
                      clients, hand_overs, each, total, hand_overs),
      .facts = {{"clients", clients},
                {"hand_overs", hand_overs},
                {"woken_least", least},
                {"woken_most", most},
                {"woken", total},
                {"woken_by_server", by_server}}};
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
