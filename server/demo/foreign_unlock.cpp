#include <fmt/format.h>

#include "guard/token_source.hpp"
#include "server/demo/kit/account.hpp"
#include "server/demo/scenarios.hpp"
#include "server/demo/servers/redis.hpp"
#include "server/products.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds short_ttl{300};
constexpr milliseconds long_ttl{60'000};
constexpr const char* lane = "Redis";
constexpr std::int64_t add_a = 50, add_b = 30, add_c = 20, expected = 200;

ClientOptions options_for(const RedisServer& server, bool guarded) {
  return {.storage = server.url(),
          .place = "demo",
          .guarded = guarded,
          .source = server.url(),
          .lock_lane = lane,
          .storage_lane = lane};
}

Outcome without(Harness& harness) {
  RedisServer server{harness};
  Account balance{harness, server.url()};
  const auto options = options_for(server, false);
  Client a{harness, "client A", options};
  Client b{harness, "client B", options};
  Client c{harness, "client C", options};
  harness.restart_clock();

  (void)server.take_plainly(a.lane(), lane, short_ttl);
  a.read();
  harness.wait_until([&] { return server.call({"PTTL", lock_key}).integer == -2; }, "an end of A's lock");
  a.note("is slow; its lock has expired meanwhile", Tone::pause);
  (void)server.take_plainly(b.lane(), lane, long_ttl);
  a.write(add_a);
  b.read();
  const auto freed = server.ask(a.lane(), lane, {"DEL", lock_key}, Tone::bad);
  a.note("believes that this was its own lock");
  const auto entered = server.take_plainly(c.lane(), lane, long_ttl, Tone::bad);
  c.read();
  c.note("B and C are both at work now");
  b.write(add_b);
  c.write(add_c);

  const auto end = balance.balance();
  Outcome outcome{.as_expected = freed.integer == 1 && shown(entered) == "OK" && end != expected};
  outcome.facts = {{"del", shown(freed)},
                   {"c_set", shown(entered)},
                   {"balance", std::to_string(end)},
                   {"expected", std::to_string(expected)}};
  outcome.sentence = "A freed B's lock and C entered beside B; " + balance_sentence(end, expected);
  return outcome;
}

// Takes the lock, which must be free, adds and gives it back.
bool add(Client& client, std::int64_t amount) {
  return client.try_take(long_ttl) && client.add(amount) && client.give_back();
}

Outcome with(Harness& harness) {
  RedisServer server{harness};
  const auto source = products().open_source(Url::parse(server.url()));
  initialise_fences(harness, server.url());
  Account balance{harness, server.url()};
  const auto options = options_for(server, true);
  Client a{harness, "client A", options};
  Client b{harness, "client B", options};
  Client c{harness, "client C", options};
  harness.restart_clock();

  a.take(short_ttl);
  const auto token_a = a.token();
  a.read();
  harness.wait_until([&] { return !source->show(Resource{account}); }, "an end of A's lease");
  a.note("is slow; its lease has run out meanwhile", Tone::pause);
  b.take(long_ttl);
  const auto token_b = b.token();
  b.read();
  const auto stale = a.write(add_a);
  const bool late_release = a.give_back();
  const bool c_waits = !c.try_take(long_ttl);
  const auto written = b.write(add_b);
  const bool is_released = b.give_back();
  const bool rest = add(c, add_c) && add(a, add_a);

  const auto end = balance.balance();
  Outcome outcome;
  outcome.facts = {
      {"token_a", to_string(token_a)},       {"token_b", to_string(token_b)},
      {"verdict_a", stale.verdict},          {"late_release", late_release ? "released" : "not_held"},
      {"c_waits", c_waits ? "1" : "0"},      {"balance", std::to_string(end)},
      {"expected", std::to_string(expected)}};
  outcome.as_expected = stale.verdict == "stale" && !late_release && c_waits && written.is_admitted() &&
                        is_released && rest && end == expected;
  outcome.sentence =
      fmt::format("A's late write is {}, its release {}, and C waits for B; {}", stale.verdict,
                  late_release ? "freed another's lock" : "is refused", balance_sentence(end, expected));
  return outcome;
}

}  // namespace

Scenario foreign_unlock() {
  return {.name = "foreign-unlock",
          .summary = "a late, unconditional DEL frees another's lock (Redis), and a third client enters",
          .opening =
              "Clients A, B and C share an account that holds 100, and one lock for it, in a real "
              "redis-server. A adds 50, B adds 30, C adds 20: in the end it must hold 200. A's lock "
              "expires while A is at work; A notices nothing, and frees 'its' lock when it is done.",
          .lanes = {"client A", "client B", "client C", lane},
          .run = [](Harness& harness, bool guarded) { return guarded ? with(harness) : without(harness); }};
}

}  // namespace fenceguard::demo
