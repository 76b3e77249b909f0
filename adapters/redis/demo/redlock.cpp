#include <fmt/format.h>

#include <memory>
#include <vector>

#include "adapters/redis/demo/client.hpp"
#include "adapters/redis/demo/stories.hpp"
#include "adapters/redis/quorum/source.hpp"
#include "adapters/redis/token_source.hpp"
#include "guard/error.hpp"
#include "guard/url.hpp"

namespace fenceguard::redis::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr std::chrono::milliseconds ttl{60'000};
constexpr const char* nodes_lane = "five nodes";
constexpr const char* storage_lane = "storage";
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;
constexpr std::size_t node_count = 5;
constexpr std::size_t majority = 3;
constexpr std::size_t common = 2;  // the node that is in both majorities: the third

// Five independent servers.
class Nodes {
 public:
  explicit Nodes(Stage& stage, const std::vector<std::string>& options = {}) : stage_{stage} {
    for (std::size_t i = 0; i < node_count; ++i) servers_.push_back(std::make_unique<Server>(stage, options));
  }

  [[nodiscard]] Server& at(std::size_t index) { return *servers_.at(index); }

  // Plain Redlock: the key, with a value of the taker's own, on as many nodes as possible; it is held where a
  // majority has it. See https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
  std::size_t lock(const std::string& who) {
    std::string granted;
    std::size_t count = 0;
    for (std::size_t i = 0; i < node_count; ++i) {
      if (!sets(i, who)) continue;
      ++count;
      granted += fmt::format("{}{}", granted.empty() ? "" : ",", i + 1);
    }
    stage_.note({.who = "client " + who,
                 .what = fmt::format("Redlock: SET {} {} NX PX {} at each node", lock_key, who, ttl.count()),
                 .where = nodes_lane,
                 .answer = fmt::format("OK from {} of {} (nodes {}): {}", count, node_count, granted,
                                       count >= majority ? "held" : "not held"),
                 .tone = Tone::token});
    return count;
  }

  // How many nodes say that this taker has it.
  [[nodiscard]] std::size_t held_by(const std::string& who) {
    std::size_t count = 0;
    for (auto& server : servers_) count += server->call({"GET", lock_key}).text == who ? 1 : 0;
    return count;
  }

  // redis-quorum://, for one attempt of which even a machine at its limit has time.
  [[nodiscard]] std::unique_ptr<TokenSource> open_quorum() const {
    std::string hosts;
    for (const auto& server : servers_)
      hosts += fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",", server->port());
    return open_quorum_source(Url::parse(fmt::format("redis-quorum://{}?node_timeout=5s", hosts)));
  }

  void take_down_last_two() {
    at(3).kill();
    at(4).kill();
    stage_.note({.who = nodes_lane, .what = "nodes 4 and 5 are down", .tone = Tone::pause});
  }

  // Those two come back, and the one that both majorities have in common restarts.
  void restart_empty() {
    at(common).restart();
    at(3).restart();
    at(4).restart();
    stage_.note(
        {.who = nodes_lane,
         .what = fmt::format("node 3 crashes and restarts, 4 and 5 are back: empty, {} keys in node 3",
                             shown(at(common).call({"DBSIZE"}))),
         .tone = Tone::pause});
  }

  // The same with nodes that keep their data, of which the third loses its disk.
  void restart_one_empty() {
    at(common).kill();
    at(common).lose_data();
    at(common).restart();
    at(3).restart();
    at(4).restart();
    stage_.note({.who = nodes_lane,
                 .what = "node 3 restarts with a new disk, 4 and 5 are back with their data",
                 .tone = Tone::pause});
  }

 private:
  bool sets(std::size_t index, const std::string& who) {
    try {
      return shown(at(index).call({"SET", lock_key, who, "NX", "PX", std::to_string(ttl.count())})) == "OK";
    } catch (const Unavailable&) {
      return false;
    }
  }

  Stage& stage_;
  std::vector<std::unique_ptr<Server>> servers_;
};

TaleEnd without(Stage& stage) {
  const Server storage{stage};
  Nodes nodes{stage};
  open_account(storage, 100);
  Actor a{stage, "client A", storage, storage_lane};
  Actor b{stage, "client B", storage, storage_lane};
  nodes.take_down_last_two();
  const auto votes_a = nodes.lock("A");
  const auto base_a = a.read();
  nodes.restart_empty();
  const auto votes_b = nodes.lock("B");
  const auto still_a = nodes.held_by("A");
  const auto base_b = b.read();
  b.note("A and B both hold the lock, each by a majority");
  b.write(base_b, add_b);
  a.write(base_a, add_a);

  const auto balance = balance_of(storage);
  TaleEnd end;
  end.is_as_it_must_be = votes_a >= majority && votes_b >= majority && still_a > 0 && balance != expected;
  end.facts = {{"votes_a", std::to_string(votes_a)},
               {"votes_b", std::to_string(votes_b)},
               {"balance", std::to_string(balance)},
               {"expected", std::to_string(expected)}};
  end.outcome = fmt::format("A had {} of {} nodes and B has {}, within A's time to live; {}", votes_a,
                            node_count, votes_b, balance_sentence(balance, expected));
  return end;
}

// The token of a taker: from redis:// on the very node that forgets everything.
Claim draw_token(Actor& actor, Nodes& nodes) {
  const auto source = open_source(Url::parse(nodes.at(common).url()));
  const auto claim = actor.take(*source, nodes_lane, ttl);
  if (!claim) throw Unavailable("node 3 did not grant a token");
  return *claim;
}

// Both hold the plain Redlock, and each carries a token.
Verdict tokens_with_redlock(Stage& stage, Actor& a, Actor& b, TaleEnd& end) {
  Nodes nodes{stage};
  nodes.take_down_last_two();
  const auto votes_a = nodes.lock("A");
  const auto claim_a = draw_token(a, nodes);
  const auto base_a = a.read(claim_a);
  nodes.restart_empty();
  const auto votes_b = nodes.lock("B");
  const auto claim_b = draw_token(b, nodes);
  const auto base_b = b.read(claim_b);
  const auto written = b.write(claim_b, base_b.value_or(0), add_b);
  const auto late = a.write(claim_a, base_a.value_or(0), add_a);
  end.facts = {{"votes_a", std::to_string(votes_a)},
               {"votes_b", std::to_string(votes_b)},
               {"token_a", to_string(claim_a.token)},
               {"token_b", to_string(claim_b.token)},
               {"verdict_a", to_string(late)}};
  end.is_as_it_must_be = votes_a >= majority && votes_b >= majority && claim_b.token > claim_a.token &&
                         written == Verdict::admitted && late == Verdict::stale;
  return late;
}

// redis-quorum:// on nodes that keep their data: the node that lost it does not vote, so nobody is let in
// beside A; and the tokens keep out A once its lease is over.
bool tokens_of_quorum(Stage& stage, Actor& a, Actor& b, TaleEnd& end) {
  constexpr std::chrono::milliseconds short_ttl{4'000};
  Nodes nodes{stage, {"--appendonly", "yes", "--appendfsync", "always"}};
  const auto source_a = nodes.open_quorum();
  source_a->raise(Resource{account}, *Token::parse(end.facts["token_b"]));
  nodes.take_down_last_two();
  const auto claim_a = a.take(*source_a, nodes_lane, short_ttl);
  if (!claim_a) throw Unavailable("three nodes of five did not grant a free lock");
  const auto base_a = a.read(*claim_a);
  nodes.restart_one_empty();
  const auto source_b = nodes.open_quorum();
  const bool has_waited = !b.take(*source_b, nodes_lane, ttl);
  const auto claim_b = b.take_when_free(*source_b, nodes_lane, ttl);
  const auto base_b = b.read(claim_b);
  const bool is_written = base_b && b.write(claim_b, *base_b, add_b) == Verdict::admitted;
  const auto late = a.write(*claim_a, base_a.value_or(0), add_a);
  const bool is_free = b.release(*source_b, nodes_lane, claim_b) == Release::released;
  const auto again = a.take_when_free(*source_b, nodes_lane, ttl);
  const auto base = a.read(again);
  end.facts.insert({{"quorum_token_a", to_string(claim_a->token)},
                    {"quorum_token_b", to_string(claim_b.token)},
                    {"quorum_b_waited", has_waited ? "1" : "0"},
                    {"quorum_verdict_a", to_string(late)}});
  return has_waited && claim_b.token > claim_a->token && is_written && late == Verdict::stale && is_free &&
         base && a.write(again, *base, add_a) == Verdict::admitted;
}

TaleEnd with(Stage& stage) {
  const Server storage{stage};
  open_account(storage, 100);
  initialise_fences(storage, 0);
  Actor a{stage, "client A", storage, storage_lane};
  Actor b{stage, "client B", storage, storage_lane};
  TaleEnd end;
  const auto late = tokens_with_redlock(stage, a, b, end);
  const auto first = balance_of(storage);
  open_account(storage, 100);
  a.note("the account is at 100 again; now redis-quorum://, on nodes that keep their data");
  const bool goes_on = tokens_of_quorum(stage, a, b, end);

  const auto balance = balance_of(storage);
  end.facts.insert({{"first_balance", std::to_string(first)},
                    {"balance", std::to_string(balance)},
                    {"expected", std::to_string(expected)}});
  end.is_as_it_must_be = end.is_as_it_must_be && first == 100 + add_b && goes_on && balance == expected;
  end.outcome = fmt::format(
      "both hold the Redlock again, but A's token is the lower one, and its write is {}; with "
      "redis-quorum:// B "
      "waits, because the empty node does not vote: {}",
      to_string(late), balance_sentence(balance, expected));
  return end;
}

}  // namespace

TaleEnd redlock_restart(Stage& stage, bool guarded) {
  return guarded ? with(stage) : without(stage);
}

}  // namespace fenceguard::redis::demos
