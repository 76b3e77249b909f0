#include <fmt/format.h>

#include "adapters/redis/demo/client.hpp"
#include "adapters/redis/demo/stories.hpp"
#include "adapters/redis/token_source.hpp"
#include "guard/error.hpp"
#include "guard/url.hpp"

namespace fenceguard::redis::demos {
namespace {

using Tone = TaleEvent::Tone;

constexpr std::chrono::milliseconds ttl{60'000};
constexpr const char* locks = "locks";
constexpr const char* storage_lane = "storage";
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;
constexpr const char* counter_key = "counter:accounts/42";

// A master and its asynchronous replica.
class Pair {
 public:
  explicit Pair(Stage& stage)
      : stage_{stage},
        master_{stage, {"--repl-diskless-sync-delay", "0"}},
        replica_{stage, {"--replicaof", "127.0.0.1", std::to_string(master_.port())}} {}

  [[nodiscard]] const Server& master() const { return master_; }
  [[nodiscard]] const Server& replica() const { return replica_; }

  // Returns when the replica has everything.
  void catch_up() {
    stage_.wait_until(
        [this] {
          const auto line = master_.info("replication", "slave0");
          return line.find("state=online") != std::string::npos &&
                 line.find("offset=" + master_.info("replication", "master_repl_offset") + ",") !=
                     std::string::npos;
        },
        "a replica that follows its master");
  }

  // From now on nothing reaches the replica: it is stopped, and its link is closed, so that what the master
  // sends cannot wait for it in the kernel.
  void cut() {
    replica_.pause();
    const auto closed = master_.call({"CLIENT", "KILL", "TYPE", "replica"});
    stage_.note({.who = locks,
                 .what = fmt::format("the replica lags: stopped by SIGSTOP, {} link closed", shown(closed)),
                 .tone = Tone::pause});
  }

  void fail_over() {
    master_.kill();
    stage_.note({.who = locks, .what = "the master is KILLED by SIGKILL", .tone = Tone::pause});
    replica_.resume();
    const auto promoted = replica_.call({"REPLICAOF", "NO", "ONE"});
    stage_.note({.who = locks,
                 .what = fmt::format("the replica is promoted: REPLICAOF NO ONE, {}", shown(promoted)),
                 .tone = Tone::pause});
  }

 private:
  Stage& stage_;
  Server master_;
  Server replica_;
};

// A plain lock, and a number from a plain counter beside it.
Token take_plainly(Actor& actor, const Server& server, const char* who) {
  const auto taken =
      actor.ask(server, locks, {"SET", lock_key, who, "NX", "PX", std::to_string(ttl.count())});
  if (shown(taken) != "OK") throw Unavailable(fmt::format("the lock was not granted: {}", shown(taken)));
  return Token{actor.ask(server, locks, {"INCR", counter_key}, Tone::token).integer};
}

Claim claim_of(Token token, const char* who) {
  return {Resource{account}, token, Holder{who}, std::nullopt};
}

// What both tellings begin with: numbers 1 and 2 were drawn long ago, and are on both servers.
void draw_before(Stage& stage, Pair& pair) {
  (void)pair.master().call({"INCR", counter_key});
  const auto drawn = pair.master().call({"INCR", counter_key});
  pair.catch_up();
  stage.note(
      {.who = locks, .what = fmt::format("the counter stands at {}, on the replica as well", shown(drawn))});
}

TaleEnd without(Stage& stage) {
  const Server storage{stage};
  Pair pair{stage};
  open_account(storage, 100);
  Actor a{stage, "client A", storage, storage_lane};
  Actor b{stage, "client B", storage, storage_lane};
  draw_before(stage, pair);
  pair.cut();
  const auto token_a = take_plainly(a, pair.master(), "A");
  const auto base_a = a.read();
  pair.fail_over();
  const auto token_b = take_plainly(b, pair.replica(), "B");
  const auto base_b = b.read();
  b.write(base_b, add_b);
  a.write(base_a, add_a);

  const auto balance = balance_of(storage);
  TaleEnd end;
  end.is_as_it_must_be = token_a == token_b && balance != expected;
  end.facts = {{"token_a", to_string(token_a)},
               {"token_b", to_string(token_b)},
               {"balance", std::to_string(balance)},
               {"expected", std::to_string(expected)}};
  end.outcome = fmt::format("A has number {} and B has number {}; {}", to_string(token_a), to_string(token_b),
                            balance_sentence(balance, expected));
  return end;
}

// The same plain counter, but every read and write carries its claim: what the second holder is told.
Verdict conflict_of_plain_numbers(Stage& stage, Actor& a, Actor& b, TaleEnd& end) {
  Pair pair{stage};
  draw_before(stage, pair);
  pair.cut();
  const auto claim_a = claim_of(take_plainly(a, pair.master(), "A"), "A");
  (void)a.read(claim_a);
  pair.fail_over();
  const auto claim_b = claim_of(take_plainly(b, pair.replica(), "B"), "B");
  (void)b.read(claim_b);
  end.facts["plain_token_a"] = to_string(claim_a.token);
  end.facts["plain_token_b"] = to_string(claim_b.token);
  return b.verdict();
}

struct Leap {
  Token token_a;
  Token token_b;
  Verdict late;          // of A's write after the failover
  bool goes_on = false;  // B wrote, and then A again
};

// The token source instead of the plain counter, through the same failover.
Leap leap_of_our_source(Stage& stage, Actor& a, Actor& b) {
  Pair pair{stage};
  const auto old_source = open_source(Url::parse(pair.master().url()));
  const auto drawn = old_source->draw();
  pair.catch_up();
  stage.note(
      {.who = locks,
       .what = fmt::format("redis://: the counter stands at {}, on the replica as well", to_string(drawn)),
       .tone = Tone::plain,
       .token = drawn});
  pair.cut();
  const auto claim_a = a.take(*old_source, locks, ttl);
  if (!claim_a) throw Unavailable("a free lock was not granted");
  const auto base_a = a.read(*claim_a);
  pair.fail_over();
  const auto source = open_source(Url::parse(pair.replica().url()));
  const auto claim_b = b.take(*source, locks, ttl);
  if (!claim_b) throw Unavailable("the promoted server did not grant the lock");
  const auto base_b = b.read(*claim_b);
  Leap leap{claim_a->token, claim_b->token, Verdict::admitted};
  leap.goes_on = base_b && b.write(*claim_b, *base_b, add_b) == Verdict::admitted;
  leap.late = a.write(*claim_a, base_a.value_or(0), add_a);
  leap.goes_on = leap.goes_on && b.release(*source, locks, *claim_b) == Release::released;
  const auto again = a.take(*source, locks, ttl);
  const auto base = again ? a.read(*again) : std::nullopt;
  leap.goes_on = leap.goes_on && base && a.write(*again, *base, add_a) == Verdict::admitted;
  return leap;
}

TaleEnd with(Stage& stage) {
  const Server storage{stage};
  open_account(storage, 100);
  initialise_fences(storage, 0);
  Actor a{stage, "client A", storage, storage_lane};
  Actor b{stage, "client B", storage, storage_lane};
  TaleEnd end;
  const auto second = conflict_of_plain_numbers(stage, a, b, end);
  b.note("the counter is of no use any more: now redis://, through the same failover");
  const auto leap = leap_of_our_source(stage, a, b);

  const auto balance = balance_of(storage);
  end.facts.insert({{"verdict_b", to_string(second)},
                    {"token_a", to_string(leap.token_a)},
                    {"token_b", to_string(leap.token_b)},
                    {"verdict_a", to_string(leap.late)},
                    {"balance", std::to_string(balance)},
                    {"expected", std::to_string(expected)}});
  end.is_as_it_must_be = end.facts["plain_token_a"] == end.facts["plain_token_b"] &&
                         second == Verdict::conflict && leap.token_b > leap.token_a &&
                         leap.late == Verdict::stale && leap.goes_on && balance == expected;
  end.outcome = fmt::format(
      "the second holder of number {} is refused ({}); the next number from redis:// is higher by {}, A's "
      "late write is {}, and work "
      "goes on; {}",
      end.facts["plain_token_b"], to_string(second), leap.token_b.value() - leap.token_a.value(),
      to_string(leap.late), balance_sentence(balance, expected));
  return end;
}

}  // namespace

TaleEnd failover(Stage& stage, bool guarded) {
  return guarded ? with(stage) : without(stage);
}

}  // namespace fenceguard::redis::demos
