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

constexpr milliseconds ttl{500};
constexpr milliseconds patience{1'500};  // thrice the time that the lock was meant to live
constexpr milliseconds look_again{100};
constexpr milliseconds exec_ttl{3'000};  // even a busy machine starts a command in less
constexpr const char* lane = "Redis";

// Client A is a process: it sends SETNX, has the answer, and is killed before it sends EXPIRE.
void die_after_setnx(Harness& harness, const RedisServer& server) {
  const auto client = harness.start({.program = "redis-cli",
                                     .package = "redis-tools",
                                     .arguments = {"-h", "127.0.0.1", "-p", std::to_string(server.port())}});
  const auto setnx = fmt::format("SETNX {} A", lock_key);
  client->send_line(setnx);
  const auto answer = client->receive_line();
  harness.note({"client A", setnx, lane, answer, Tone::token});
  client->kill();
  harness.note("client A", "KILLED by SIGKILL, before it sends EXPIRE", Tone::pause);
  if (answer != "1") throw Unavailable("SETNX on a free lock answered " + answer);
}

Outcome without(Harness& harness) {
  RedisServer server{harness};
  die_after_setnx(harness, server);
  const auto began = harness.now();
  (void)server.ask("client B", lane, {"SETNX", lock_key, "B"});
  int refusals = 0;
  bool is_taken = false;
  while (!is_taken && harness.now() - began < patience) {
    is_taken = server.call({"SETNX", lock_key, "B"}).integer == 1;
    refusals += is_taken ? 0 : 1;
    harness.wait(look_again);
  }
  const auto waited = std::chrono::duration_cast<milliseconds>(harness.now() - began).count();
  harness.note({"client B", fmt::format("asks {} times more in {} ms", refusals + is_taken, waited), lane,
                is_taken ? "1" : "0, each time", is_taken ? Tone::plain : Tone::bad});
  const auto left = server.ask("client B", lane, {"PTTL", lock_key}, Tone::bad).integer;
  const bool is_stuck = !is_taken && left == -1;
  return {
      .as_expected = is_stuck,
      .sentence = is_stuck ? "the lock is STUCK: its owner is dead, it has no time to live, and B waits in "
                             "vain"
                           : "the lock is not stuck",
      .facts = {{"taken_by_b", is_taken}, {"pttl_ms", left}, {"refusals", refusals}, {"waited_ms", waited}}};
}

// Client A is 'fenceguard exec', killed as soon as its command runs: right after it took the lock.
Token die_after_grant(Harness& harness, const RedisServer& server) {
  const auto client = harness.start({.program = std::string{guard_program},
                                     .arguments = {"exec", "--source", server.url(), "--resource", account,
                                                   "--ttl", fmt::format("{}ms", exec_ttl.count()), "--",
                                                   "/bin/sh", "-c", "echo $FENCING_TOKEN; exec sleep 60"}});
  const auto token = Token::parse(client->receive_line());
  if (!token) throw Unavailable("client A has no token");
  harness.note({"client A", fmt::format("takes the lock, {}, in one step", ttl_text(exec_ttl)), lane,
                fmt::format("token {} for A", to_string(*token)), Tone::token, token});
  client->kill();
  harness.note("client A", "KILLED by SIGKILL, at the same point", Tone::pause);
  const auto record = open_source_at(Url::parse(server.url()))->show(Resource{account});
  harness.note(
      {"client A", "leaves the lock behind", lane,
       record ? fmt::format("{} ms to live", record->remaining.value_or(exec_ttl).count()) : "expired"});
  return *token;
}

Outcome with(Harness& harness) {
  RedisServer server{harness};
  initialise_fences(harness, server.url());
  Fixture fixture{harness, server.client_options(lane, true)};
  auto& [balance, a, b] = fixture;
  a.set_claim(die_after_grant(harness, server), Account::initial);
  const bool was_held = !b.try_take(ttl);
  b.take_when_free(ttl);
  const bool is_written = b.add(add_b);
  a.note("a write of A's, delayed in the network, arrives now", Tone::pause);
  const auto late = a.write(add_a);

  const auto end = balance.balance();
  return {.as_expected = b.token() > a.token() && is_written && late.verdict == "stale" &&
                         end == Account::initial + add_b,
          .sentence = fmt::format(
              "the lock expired by itself, B has the higher token, and A's late write is {}", late.verdict),
          .facts = {{"token_a", a.token()},
                    {"token_b", b.token()},
                    {"was_held", was_held},
                    {"verdict_a", late.verdict},
                    {"balance", end}}};
}

}  // namespace

Scenario expire_crash() {
  return {.name = "expire-crash",
          .summary = "a client dies between SETNX and EXPIRE (Redis), and the lock is stuck",
          .opening =
              "Clients take a lock for an account that they add to, in a real redis-server. Client A dies "
              "right after it took the lock. First it took it in two steps, SETNX and then EXPIRE; then "
              "in the one step of a token source.",
          .lanes = {"client A", "client B", lane},
          .run = [](Harness& harness, bool guarded) { return guarded ? with(harness) : without(harness); }};
}

}  // namespace fenceguard::demo
