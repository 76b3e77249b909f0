#include <fmt/format.h>

#include "demo/kit/account.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/guard_server.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{300};
constexpr milliseconds ttl_of_b{60'000};
constexpr milliseconds lock_wait{8'000};
constexpr milliseconds ask_again{50};

std::string storage_of(const Harness& harness) {
  return fmt::format("sqlite:{}/storage.db", harness.folder());
}

// A reads, loses its lease, and writes between B's read and B's write.
Outcome run_late_write(Harness& harness, const ClientOptions& options, bool is_refused,
                       std::string_view lost) {
  Fixture fixture{harness, options};
  auto& [balance, a, b] = fixture;
  a.take(ttl, lock_wait);
  const auto token_a = a.token();
  a.read();
  a.note("is slow: its lease runs out", Tone::pause);
  b.take_when_free(ttl_of_b, ask_again, lock_wait);
  b.read();
  const auto written_a = a.write(add_a);
  const auto written_b = b.write(add_b);
  b.give_back();
  if (is_refused) {
    a.roll_back();
    a.take(ttl_of_b);
    a.add(add_a);
  }

  const auto end = balance.balance();
  const bool is_shown = is_refused ? written_a.verdict == "stale" && end == expected
                                   : written_a.is_admitted() && written_b.is_lost_update;
  return {.as_expected = b.token() > token_a && written_b.is_admitted() && is_shown,
          .sentence = balance_sentence(end, expected, lost),
          .facts = {{"token_a", token_a},
                    {"token_b", b.token()},
                    {"verdict_a", written_a.verdict},
                    {"verdict_b", written_b.verdict},
                    {"b_overwrote", written_b.is_lost_update},
                    {"balance", end},
                    {"expected", expected}}};
}

Outcome run_lost_update(Harness& harness, bool guarded) {
  const auto storage = storage_of(harness);
  const GuardServer guard{harness, {.storage = storage}};
  const ClientOptions options{.storage = storage,
                              .guard = guarded ? guard.data() : "",
                              .guarded = guarded,
                              .control = guard.control()};
  return run_late_write(harness, options, guarded, "A's update, which was acknowledged,");
}

// Every write carries its token in both runs. B advances before it reads in the second alone.
Outcome run_read_before_advance(Harness& harness, bool advances) {
  const auto storage = storage_of(harness);
  const GuardServer guard{harness, {.storage = storage}};
  const ClientOptions options{
      .storage = storage, .guard = guard.data(), .is_advanced = advances, .source = storage};
  return run_late_write(harness, options, advances, "A's update, which was admitted,");
}

}  // namespace

Scenario lost_update() {
  return {
      .name = "lost-update",
      .summary = "a table without a version column: the rightful holder overwrites a late write unseen",
      .opening =
          "Clients A and B share an account that holds 100; A adds 50, B adds 30. Its table has no version "
          "column, so no statement notices that the balance is another than the one that was read. A is "
          "slow, its lease runs out, and it writes while B, the holder by now, is at work.",
      .lanes = {"client A", "locks", "client B", "storage"},
      .run = run_lost_update};
}

Scenario read_before_advance() {
  return {.name = "read-before-advance",
          .summary = "a new holder reads before it advances the guard, and an older write lands in between",
          .opening =
              "Clients A and B share an account that holds 100; A adds 50, B adds 30. Every write carries "
              "its token to the guard. A is slow and its lease runs out; B takes the lock. What B reads is "
              "worth something only if the guard has seen B's token before: until then A's token is the "
              "highest, and its late write is let in. First B reads plainly, then with its claim, which "
              "advances the guard.",
          .lanes = {"client A", "locks", "client B", "storage"},
          .run = run_read_before_advance,
          .way_without = "without the advance",
          .way_with = "with the advance",
          .guard_line = Scenario::GuardLine::both_runs};
}

}  // namespace fenceguard::demo
