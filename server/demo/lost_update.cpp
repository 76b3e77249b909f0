#include <fmt/format.h>

#include "server/demo/kit/account.hpp"
#include "server/demo/scenarios.hpp"
#include "server/demo/servers/guard_server.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{300};
constexpr milliseconds ttl_of_b{60'000};
constexpr milliseconds lock_wait{8'000};
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;

Outcome run(Harness& harness, bool guarded) {
  const auto storage = fmt::format("sqlite:{}/storage.db", harness.folder());
  GuardServer guard{harness, {.storage = storage}};
  Account balance{harness, storage, ""};
  ClientOptions options{.storage = storage, .guarded = guarded, .control = guard.control()};
  if (guarded) options.guard = guard.data();
  Client a{harness, "client A", options};
  Client b{harness, "client B", options};
  harness.restart_clock();

  a.take(ttl, lock_wait);
  const auto token_a = a.token();
  a.read();
  a.note("is slow: its lease runs out", Tone::pause);
  b.take(ttl_of_b, lock_wait);
  const auto token_b = b.token();
  b.read();
  const auto written_a = a.write(add_a);
  const auto written_b = b.write(add_b);
  b.give_back();
  if (guarded) {
    a.roll_back();
    a.take(ttl_of_b);
    a.add(add_a);
  }

  const auto final_balance = balance.balance();
  Outcome outcome{.sentence =
                      balance_sentence(final_balance, expected, "A's update, which was acknowledged,")};
  outcome.facts = {{"token_a", to_string(token_a)},
                   {"token_b", to_string(token_b)},
                   {"verdict_a", written_a.verdict},
                   {"verdict_b", written_b.verdict},
                   {"b_overwrote", written_b.is_lost_update ? "1" : "0"},
                   {"balance", std::to_string(final_balance)},
                   {"expected", std::to_string(expected)}};
  outcome.as_expected = token_b > token_a && written_b.is_admitted() &&
                        (guarded ? written_a.verdict == "stale" && final_balance == expected
                                 : written_a.is_admitted() && written_b.is_lost_update);
  return outcome;
}

}  // namespace

Scenario lost_update() {
  return {
      .name = "lost-update",
      .summary = "a table without a version column: the rightful holder overwrites a late write unseen",
      .opening =
          "Clients A and B share an account that holds 100; A adds 50, B adds 30. Its table has no version "
          "column, so no statement notices that the balance is another than the one that was read. A is "
          "slow, "
          "its lease runs out, and it writes while B, the holder by now, is at work.",
      .lanes = {"client A", "locks", "client B", "storage"},
      .run = run};
}

}  // namespace fenceguard::demo
