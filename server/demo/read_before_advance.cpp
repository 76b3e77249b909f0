#include <fmt/format.h>

#include "server/demo/kit/account.hpp"
#include "server/demo/scenarios.hpp"
#include "server/demo/servers/guard_server.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{300};
constexpr milliseconds ttl_of_b{60'000};
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;

// Every write carries its token in both runs. B advances before it reads in the second alone.
Outcome run(Harness& harness, bool advances) {
  const auto storage = fmt::format("sqlite:{}/storage.db", harness.folder());
  GuardServer guard{harness, {.storage = storage}};
  Account balance{harness, storage, ""};
  const ClientOptions options{.guard = guard.data(), .is_advanced = advances, .source = storage};
  Client a{harness, "client A", options};
  Client b{harness, "client B", options};
  harness.restart_clock();

  a.take(ttl);
  const auto token_a = a.token();
  a.read();
  a.note("is slow: its lease runs out", Tone::pause);
  b.take_when_free(ttl_of_b);
  const auto token_b = b.token();
  b.read();
  const auto written_a = a.write(add_a);
  const auto written_b = b.write(add_b);
  b.give_back();
  if (advances) {
    a.roll_back();
    a.take(ttl_of_b);
    a.add(add_a);
  }

  const auto final_balance = balance.balance();
  Outcome outcome{.sentence = balance_sentence(final_balance, expected, "A's update, which was admitted,")};
  outcome.facts = {{"token_a", to_string(token_a)},
                   {"token_b", to_string(token_b)},
                   {"verdict_a", written_a.verdict},
                   {"verdict_b", written_b.verdict},
                   {"b_overwrote", written_b.is_lost_update ? "1" : "0"},
                   {"balance", std::to_string(final_balance)},
                   {"expected", std::to_string(expected)}};
  outcome.as_expected = token_b > token_a && written_b.is_admitted() &&
                        (advances ? written_a.verdict == "stale" && final_balance == expected
                                  : written_a.is_admitted() && written_b.is_lost_update);
  return outcome;
}

}  // namespace

Scenario read_before_advance() {
  return {.name = "read-before-advance",
          .summary = "a new holder reads before it advances the guard, and an older write lands in between",
          .opening =
              "Clients A and B share an account that holds 100; A adds 50, B adds 30. Every write carries "
              "its token "
              "to the guard. A is slow and its lease runs out; B takes the lock. What B reads is worth "
              "something only "
              "if the guard has seen B's token before: until then A's token is the highest, and its late "
              "write is let "
              "in. First B reads plainly, then with its claim, which advances the guard.",
          .lanes = {"client A", "locks", "client B", "storage"},
          .run = run,
          .way_without = "without the advance",
          .way_with = "with the advance",
          .guard_line = Scenario::GuardLine::both_runs};
}

}  // namespace fenceguard::demo
