#include <fmt/format.h>

#include <memory>
#include <vector>

#include "adapters/redis/demos_client.hpp"
#include "adapters/redis/demos_stories.hpp"
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

// Five independent servers that keep nothing on disk.
class Nodes {
 public:
  explicit Nodes(Stage& stage) : stage_{stage} {
    for (std::size_t i = 0; i < node_count; ++i) servers_.push_back(std::make_unique<Server>(stage));
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

TaleEnd with(Stage& stage) {
  const Server storage{stage};
  Nodes nodes{stage};
  open_account(storage, 100);
  initialise_fences(storage, open_source(Url::parse(nodes.at(common).url()))->draw().value());
  Actor a{stage, "client A", storage, storage_lane};
  Actor b{stage, "client B", storage, storage_lane};
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

  const auto before = balance_of(storage);
  TaleEnd end;
  end.facts = {{"votes_a", std::to_string(votes_a)},
               {"votes_b", std::to_string(votes_b)},
               {"token_a", to_string(claim_a.token)},
               {"token_b", to_string(claim_b.token)},
               {"verdict_a", to_string(late)},
               {"balance", std::to_string(before)},
               {"balance_of_b", std::to_string(100 + add_b)}};
  end.is_as_it_must_be = votes_a >= majority && votes_b >= majority && claim_b.token > claim_a.token &&
                         written == Verdict::admitted && late == Verdict::stale && before == 100 + add_b;
  end.outcome = fmt::format(
      "both hold the lock again, but B's token is higher, though node 3 had lost its counter: A's write is "
      "{}, "
      "and B's stands: the account holds {}",
      to_string(late), before);
  return end;
}

}  // namespace

TaleEnd redlock_restart(Stage& stage, bool guarded) {
  return guarded ? with(stage) : without(stage);
}

}  // namespace fenceguard::redis::demos
