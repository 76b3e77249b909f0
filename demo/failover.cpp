#include <fmt/format.h>

#include "adapters/schemes.hpp"
#include "demo/kit/account.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/redis.hpp"
#include "guard/error.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::demo {
namespace {

constexpr std::chrono::milliseconds ttl{60'000};
constexpr const char* locks = "locks";
constexpr const char* counter_key = "counter:accounts/42";

// A master and its asynchronous replica.
class Pair {
 public:
  explicit Pair(Harness& harness)
      : harness_{harness},
        master_{harness, {"--repl-diskless-sync-delay", "0"}},
        replica_{harness, {"--replicaof", "127.0.0.1", std::to_string(master_.port())}} {}

  [[nodiscard]] RedisServer& master() { return master_; }
  [[nodiscard]] RedisServer& replica() { return replica_; }

  // Returns when the replica has everything.
  void catch_up(const std::string& counter) {
    harness_.wait_until(
        [this] {
          const auto line = master_.info("replication", "slave0");
          return line.find("state=online") != std::string::npos &&
                 line.find("offset=" + master_.info("replication", "master_repl_offset") + ",") !=
                     std::string::npos;
        },
        "a replica that follows its master");
    note(fmt::format("the counter stands at {}, on the replica as well", counter), Tone::plain);
  }

  // From now on nothing reaches the replica: it is stopped, and its link is closed, so that what the master
  // sends cannot wait for it in the kernel.
  void cut() {
    replica_.pause();
    const auto closed = master_.call({"CLIENT", "KILL", "TYPE", "replica"});
    note(fmt::format("the replica lags: stopped by SIGSTOP, {} link closed", shown(closed)), Tone::pause);
  }

  void fail_over() {
    master_.kill();
    note("the master is KILLED by SIGKILL", Tone::pause);
    replica_.resume();
    const auto promoted = replica_.call({"REPLICAOF", "NO", "ONE"});
    note(fmt::format("the replica is promoted: REPLICAOF NO ONE, {}", shown(promoted)), Tone::pause);
  }

 private:
  void note(std::string what, Tone tone) { harness_.note(locks, std::move(what), tone); }

  Harness& harness_;
  RedisServer master_;
  RedisServer replica_;
};

// A plain lock, and a number from a plain counter beside it.
Token take_plainly(const std::string& lane, RedisServer& server) {
  const auto taken = server.take_plainly(lane, locks, ttl, Tone::plain);
  if (shown(taken) != "OK") throw Unavailable("the lock was not granted: " + shown(taken));
  return Token{server.ask(lane, locks, {"INCR", counter_key}, Tone::token).integer};
}

// A takes number 3 of a plain counter and reads; the replica, which knows of 2, is promoted; B takes 3.
std::pair<Token, Token> repeat_a_number(Harness& harness, Client& a, Client& b, bool guarded) {
  Pair pair{harness};
  (void)pair.master().call({"INCR", counter_key});
  pair.catch_up(shown(pair.master().call({"INCR", counter_key})));
  pair.cut();
  const auto token_a = take_plainly(a.lane(), pair.master());
  if (guarded) a.set_claim(token_a);
  (void)a.try_read();
  pair.fail_over();
  const auto token_b = take_plainly(b.lane(), pair.replica());
  if (guarded) b.set_claim(token_b);
  return {token_a, token_b};
}

Outcome without(Harness& harness, Fixture& fixture) {
  auto& [balance, a, b] = fixture;
  const auto [token_a, token_b] = repeat_a_number(harness, a, b, false);
  b.read();
  b.write(add_b);
  a.write(add_a);
  const auto end = balance.balance();
  return {.as_expected = token_a == token_b && end != expected,
          .sentence = fmt::format("A has number {} and B has number {}; {}", to_string(token_a),
                                  to_string(token_b), balance_sentence(end, expected)),
          .facts = {{"token_a", token_a}, {"token_b", token_b}, {"balance", end}, {"expected", expected}}};
}

Outcome with(Harness& harness, Fixture& fixture) {
  auto& [balance, a, b] = fixture;
  const auto [plain_a, plain_b] = repeat_a_number(harness, a, b, true);
  const auto second = b.try_read();
  b.note("the counter is of no use any more: now redis://, through the same failover");

  Pair pair{harness};
  const auto drawn = open_source_at(Url::parse(pair.master().url()))->draw();
  pair.catch_up(to_string(drawn));
  pair.cut();
  a.use_source(pair.master().url());
  a.take(ttl);
  const auto token_a = a.token();
  (void)a.try_read();
  pair.fail_over();
  a.use_source(pair.replica().url());
  b.use_source(pair.replica().url());
  b.take(ttl);
  const auto token_b = b.token();
  bool goes_on = b.add(add_b);
  const auto late = a.write(add_a);
  goes_on = b.give_back() && a.try_take(ttl) && a.add(add_a) && goes_on;

  const auto end = balance.balance();
  return {.as_expected = plain_a == plain_b && second.verdict == "conflict" && token_b > token_a &&
                         late.verdict == "stale" && goes_on && end == expected,
          .sentence = fmt::format("the second holder of number {} is refused ({}); the next number from "
                                  "redis:// is higher by {}, A's late write is {}, and work goes on; {}",
                                  to_string(plain_b), second.verdict, token_b.value() - token_a.value(),
                                  late.verdict, balance_sentence(end, expected)),
          .facts = {{"plain_token_a", plain_a},
                    {"plain_token_b", plain_b},
                    {"verdict_b", second.verdict},
                    {"token_a", token_a},
                    {"token_b", token_b},
                    {"verdict_a", late.verdict},
                    {"balance", end},
                    {"expected", expected}}};
}

Outcome run(Harness& harness, bool guarded) {
  const RedisServer storage{harness};
  if (guarded) initialise_fences(harness, storage.url(), {"--floor", "0"});
  Fixture fixture{harness, {.storage = storage.url(), .place = "demo", .guarded = guarded}};
  return guarded ? with(harness, fixture) : without(harness, fixture);
}

}  // namespace

Scenario failover() {
  return {.name = "failover",
          .summary = "a lagging replica is promoted (Redis), and a plain counter repeats a number",
          .opening =
              "Clients A and B share an account that holds 100; A adds 50, B adds 30. The lock and a "
              "counter for tokens are in a redis-server with an asynchronous replica, the account is in "
              "another redis-server, which does not fail. The replica lags, the master is killed, the "
              "replica is promoted.",
          .lanes = {"client A", "client B", locks, "storage"},
          .run = run};
}

}  // namespace fenceguard::demo
