#include <fmt/format.h>

#include "guard/error.hpp"
#include "guard/token_source.hpp"
#include "server/demo/kit/account.hpp"
#include "server/demo/scenarios.hpp"
#include "server/demo/servers/redis.hpp"
#include "server/products.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{60'000};
constexpr milliseconds short_ttl{4'000};
constexpr const char* nodes_lane = "five nodes";
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;
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
    harness_.note(
        {.actor = lane,
         .what = fmt::format("Redlock: SET {} {} NX PX {} at each node", lock_key, taker, ttl.count()),
         .target = nodes_lane,
         .answer = fmt::format("OK from {} of {} (nodes {}): {}", granted.size(), node_count,
                               fmt::join(granted, ","), granted.size() >= majority ? "held" : "not held"),
         .tone = Tone::token});
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
  void note(const char* what) { harness_.note({.actor = nodes_lane, .what = what, .tone = Tone::pause}); }

  Harness& harness_;
  std::vector<std::unique_ptr<RedisServer>> servers_;
};

constexpr const char* all_empty = "node 3 crashes and restarts, 4 and 5 are back: all three empty";
constexpr const char* one_empty = "node 3 restarts with a new disk, 4 and 5 are back with their data";

Outcome without(Harness& harness, Account& balance, Client& a, Client& b) {
  Nodes nodes{harness};
  nodes.take_down_last_two();
  const auto votes_a = nodes.lock(a.lane());
  a.read();
  nodes.restart_common_empty(all_empty);
  const auto votes_b = nodes.lock(b.lane());
  const auto still_a = nodes.held_by("A");
  b.read();
  b.note("A and B both hold the lock, each by a majority");
  b.write(add_b);
  a.write(add_a);

  const auto end = balance.balance();
  Outcome outcome{.as_expected =
                      votes_a >= majority && votes_b >= majority && still_a > 0 && end != expected};
  outcome.facts = {{"votes_a", std::to_string(votes_a)},
                   {"votes_b", std::to_string(votes_b)},
                   {"balance", std::to_string(end)},
                   {"expected", std::to_string(expected)}};
  outcome.sentence = fmt::format("A had {} of {} nodes and B has {}, within A's time to live; {}", votes_a,
                                 node_count, votes_b, balance_sentence(end, expected));
  return outcome;
}

// Both hold the plain Redlock, and each carries a token: from redis:// on the very node that forgets
// everything.
Answer tokens_with_redlock(Harness& harness, Client& a, Client& b, Outcome& outcome) {
  Nodes nodes{harness};
  a.use_source(nodes.at(common).url());
  b.use_source(nodes.at(common).url());
  nodes.take_down_last_two();
  const auto votes_a = nodes.lock(a.lane());
  a.take(ttl);
  (void)a.try_read();
  nodes.restart_common_empty(all_empty);
  const auto votes_b = nodes.lock(b.lane());
  b.take(ttl);
  const bool is_written = b.add(add_b);
  auto late = a.write(add_a);
  outcome.facts = {{"votes_a", std::to_string(votes_a)},
                   {"votes_b", std::to_string(votes_b)},
                   {"token_a", a.token_text()},
                   {"token_b", b.token_text()},
                   {"verdict_a", late.verdict}};
  outcome.as_expected = votes_a >= majority && votes_b >= majority && b.token() > a.token() && is_written &&
                        late.verdict == "stale";
  return late;
}

// redis-quorum:// on nodes that keep their data: the node that lost it does not vote, so no client is let in
// beside A; and the tokens keep out A once its lease is over.
bool tokens_of_quorum(Harness& harness, Client& a, Client& b, Outcome& outcome) {
  Nodes nodes{harness, {"--appendonly", "yes", "--appendfsync", "always"}};
  products().open_source(Url::parse(nodes.quorum_url()))->raise(Resource{account}, b.token());
  a.use_source(nodes.quorum_url());
  b.use_source(nodes.quorum_url());
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
  outcome.facts.insert({{"quorum_token_a", to_string(token_a)},
                        {"quorum_token_b", to_string(token_b)},
                        {"quorum_b_waited", has_waited ? "1" : "0"},
                        {"quorum_verdict_a", late.verdict}});
  return has_waited && token_b > token_a && is_written && late.verdict == "stale" && is_free && a.add(add_a);
}

Outcome with(Harness& harness, Account& balance, Client& a, Client& b) {
  Outcome outcome;
  const auto late = tokens_with_redlock(harness, a, b, outcome);
  outcome.facts["first_balance"] = std::to_string(balance.balance());
  balance.reset(a.lane(), "now redis-quorum://, on nodes that keep their data");
  const bool is_sound = tokens_of_quorum(harness, a, b, outcome);

  const auto end = balance.balance();
  outcome.facts.insert({{"balance", std::to_string(end)}, {"expected", std::to_string(expected)}});
  outcome.as_expected = outcome.as_expected && is_sound && end == expected;
  outcome.sentence = fmt::format(
      "both hold the Redlock again, but A's token is the lower one, and its write is {}; with "
      "redis-quorum:// B "
      "waits, because the empty node does not vote: {}",
      late.verdict, balance_sentence(end, expected));
  return outcome;
}

Outcome run(Harness& harness, bool guarded) {
  const RedisServer storage{harness};
  Account balance{harness, storage.url()};
  if (guarded) initialise_fences(harness, storage.url(), {"--floor", "0"});
  const ClientOptions options{
      .storage = storage.url(), .place = "demo", .guarded = guarded, .lock_lane = nodes_lane};
  Client a{harness, "client A", options};
  Client b{harness, "client B", options};
  harness.restart_clock();
  return guarded ? with(harness, balance, a, b) : without(harness, balance, a, b);
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
