#include <fmt/format.h>

#include "adapters/schemes.hpp"
#include "demo/kit/account.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/redis.hpp"
#include "guard/error.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{60'000};
constexpr milliseconds short_ttl{4'000};
constexpr const char* nodes_lane = "five nodes";
constexpr std::size_t node_count = 5;
constexpr std::size_t majority = 3;
constexpr std::size_t common = 2;  // the node that is in both majorities: the third

// Five independent servers.
class Nodes {
 public:
  explicit Nodes(Harness& harness, const std::vector<std::string>& options = {}) : harness_{harness} {
    for (std::size_t i = 0; i < node_count; ++i)
      servers_.push_back(std::make_unique<RedisServer>(harness, options));
  }

  [[nodiscard]] RedisServer& at(std::size_t index) { return *servers_.at(index); }

  // redis-quorum://, for one attempt of which even a machine at its limit has time.
  [[nodiscard]] std::string quorum_url() const {
    std::vector<std::string> hosts;
    for (const auto& server : servers_) hosts.push_back(server->host());
    return fmt::format("redis-quorum://{}?node_timeout=5s", fmt::join(hosts, ","));
  }

  // Plain Redlock: the key, with a value of the taker's own, on as many nodes as possible; it is held where a
  // majority has it. See https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
  std::size_t lock(const std::string& lane) {
    const std::string taker{lane.back()};
    std::vector<std::size_t> granted;
    for (std::size_t i = 0; i < node_count; ++i)
      if (sets(i, taker)) granted.push_back(i + 1);
    harness_.note({lane,
                   fmt::format("Redlock: SET {} {} NX PX {} at each node", lock_key, taker, ttl.count()),
                   nodes_lane,
                   fmt::format("OK from {} of {} (nodes {}): {}", granted.size(), node_count,
                               fmt::join(granted, ","), granted.size() >= majority ? "held" : "not held"),
                   Tone::token});
    return granted.size();
  }

  // How many nodes say that this taker has it.
  [[nodiscard]] std::size_t held_by(const std::string& taker) {
    std::size_t count = 0;
    for (auto& server : servers_) count += server->call({"GET", lock_key}).text == taker ? 1 : 0;
    return count;
  }

  void take_down_last_two() {
    at(3).kill();
    at(4).kill();
    note("nodes 4 and 5 are down");
  }

  // Those two come back, and the one that both majorities have in common restarts with a new disk.
  void restart_common_empty(const char* what) {
    at(common).restart_empty();
    at(3).restart();
    at(4).restart();
    note(what);
  }

 private:
  bool sets(std::size_t index, const std::string& taker) {
    try {
      return shown(at(index).call({"SET", lock_key, taker, "NX", "PX", std::to_string(ttl.count())})) == "OK";
    } catch (const Unavailable&) {
      return false;
    }
  }
  void note(const char* what) { harness_.note(nodes_lane, what, Tone::pause); }

  Harness& harness_;
  std::vector<std::unique_ptr<RedisServer>> servers_;
};

constexpr const char* all_empty = "node 3 crashes and restarts, 4 and 5 are back: all three empty";
constexpr const char* one_empty = "node 3 restarts with a new disk, 4 and 5 are back with their data";

// Both hold the plain Redlock. With the guard each carries a token as well: from redis:// on the very node
// that forgets everything.
Outcome break_redlock(Harness& harness, Fixture& fixture, bool guarded) {
  auto& [balance, a, b] = fixture;
  Nodes nodes{harness};
  for (auto* client : {&a, &b}) client->use_source(nodes.at(common).url());
  nodes.take_down_last_two();
  const auto votes_a = nodes.lock(a.lane());
  if (guarded) a.take(ttl);
  a.read();
  nodes.restart_common_empty(all_empty);
  const auto votes_b = nodes.lock(b.lane());
  const auto still_a = nodes.held_by("A");
  if (guarded) b.take(ttl);
  b.read();
  if (!guarded) b.note("A and B both hold the lock, each by a majority");
  const auto written = b.write(add_b);
  const auto late = a.write(add_a);

  const auto end = balance.balance();
  Outcome outcome{
      .as_expected = votes_a >= majority && votes_b >= majority && still_a > 0 && written.is_admitted(),
      .facts = {{"votes_a", votes_a}, {"votes_b", votes_b}, {"expected", expected}}};
  if (guarded) {
    outcome.as_expected = outcome.as_expected && b.token() > a.token() && late.verdict == "stale";
    outcome.facts.insert({{"token_a", a.token()},
                          {"token_b", b.token()},
                          {"verdict_a", late.verdict},
                          {"first_balance", end}});
    outcome.sentence =
        "both hold the Redlock again, but A's token is the lower one, and its write is " + late.verdict;
  } else {
    outcome.as_expected = outcome.as_expected && end != expected;
    outcome.facts.insert({"balance", end});
    outcome.sentence = fmt::format("A had {} of {} nodes and B has {}, within A's time to live; {}", votes_a,
                                   node_count, votes_b, balance_sentence(end, expected));
  }
  return outcome;
}

// redis-quorum:// on nodes that keep their data: the node that lost it does not vote, so B is not let in
// beside A; and the tokens keep out A once its lease is over.
Outcome hold_with_quorum(Harness& harness, Client& a, Client& b) {
  Nodes nodes{harness, {"--appendonly", "yes", "--appendfsync", "always"}};
  open_source_at(Url::parse(nodes.quorum_url()))->raise(Resource{account}, b.token());
  for (auto* client : {&a, &b}) client->use_source(nodes.quorum_url());
  nodes.take_down_last_two();
  a.take(short_ttl);
  const auto token_a = a.token();
  (void)a.try_read();
  nodes.restart_common_empty(one_empty);
  const bool has_waited = !b.try_take(ttl);
  b.take_when_free(ttl);
  const auto token_b = b.token();
  const bool is_written = b.add(add_b);
  const auto late = a.write(add_a);
  const bool is_free = b.give_back();
  a.take_when_free(ttl);
  const bool goes_on = a.add(add_a) && is_free;
  return {.as_expected = has_waited && token_b > token_a && is_written && late.verdict == "stale" && goes_on,
          .facts = {{"quorum_token_a", token_a},
                    {"quorum_token_b", token_b},
                    {"quorum_b_waited", has_waited},
                    {"quorum_verdict_a", late.verdict}}};
}

Outcome run(Harness& harness, bool guarded) {
  const RedisServer storage{harness};
  if (guarded) initialise_fences(harness, storage.url(), {"--floor", "0"});
  Fixture fixture{harness,
                  {.storage = storage.url(), .place = "demo", .guarded = guarded, .lock_lane = nodes_lane}};
  auto& [balance, a, b] = fixture;
  auto outcome = break_redlock(harness, fixture, guarded);
  if (!guarded) return outcome;

  balance.reset(a.lane(), "now redis-quorum://, on nodes that keep their data");
  auto sound = hold_with_quorum(harness, a, b);
  const auto end = balance.balance();
  outcome.facts.merge(sound.facts);
  outcome.facts.insert({"balance", end});
  outcome.as_expected = outcome.as_expected && sound.as_expected && end == expected;
  outcome.sentence += fmt::format("; with redis-quorum:// B waits, because the empty node does not vote: {}",
                                  balance_sentence(end, expected));
  return outcome;
}

}  // namespace

Scenario redlock_restart() {
  return {.name = "redlock-restart",
          .summary = "nodes that restart empty let two clients hold one Redlock",
          .opening =
              "Clients A and B share an account that holds 100; A adds 50, B adds 30. The lock is a "
              "Redlock: a key on the majority of five real redis-servers, which keep nothing on disk. "
              "The account is in a sixth.",
          .lanes = {"client A", "client B", nodes_lane, "storage"},
          .run = run};
}

}  // namespace fenceguard::demo
