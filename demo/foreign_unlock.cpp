#include <fmt/format.h>

#include "adapters/schemes.hpp"
#include "demo/kit/account.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/redis.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds short_ttl{300};
constexpr milliseconds long_ttl{60'000};
constexpr const char* lane = "Redis";
constexpr std::int64_t add_c = 20, expected_of_three = expected + add_c;

Outcome without(Harness& harness, RedisServer& server, Fixture& fixture, Client& c) {
  auto& [balance, a, b] = fixture;
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
  return {.as_expected = freed.integer == 1 && shown(entered) == "OK" && end != expected_of_three,
          .sentence = "A freed B's lock and C entered beside B; " + balance_sentence(end, expected_of_three),
          .facts = {{"del", shown(freed)},
                    {"c_set", shown(entered)},
                    {"balance", end},
                    {"expected", expected_of_three}}};
}

// Takes the lock, which must be free, adds and gives it back.
bool add(Client& client, std::int64_t amount) {
  return client.try_take(long_ttl) && client.add(amount) && client.give_back();
}

Outcome with(Harness& harness, RedisServer& server, Fixture& fixture, Client& c) {
  auto& [balance, a, b] = fixture;
  const auto source = open_source_at(Url::parse(server.url()));
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
  const bool b_goes_on = b.write(add_b).is_admitted() && b.give_back();
  const bool rest = add(c, add_c) && add(a, add_a);

  const auto end = balance.balance();
  return {.as_expected = stale.verdict == "stale" && !late_release && c_waits && b_goes_on && rest &&
                         end == expected_of_three,
          .sentence = fmt::format("A's late write is {}, its release {}, and C waits for B; {}",
                                  stale.verdict, late_release ? "freed another's lock" : "is refused",
                                  balance_sentence(end, expected_of_three)),
          .facts = {{"token_a", token_a},
                    {"token_b", token_b},
                    {"verdict_a", stale.verdict},
                    {"late_release", late_release ? "released" : "not_held"},
                    {"c_waits", c_waits},
                    {"balance", end},
                    {"expected", expected_of_three}}};
}

Outcome run(Harness& harness, bool guarded) {
  RedisServer server{harness};
  if (guarded) initialise_fences(harness, server.url());
  const auto options = server.client_options(lane, guarded);
  Client c{harness, "client C", options};
  Fixture fixture{harness, options};
  return guarded ? with(harness, server, fixture, c) : without(harness, server, fixture, c);
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
          .run = run};
}

}  // namespace fenceguard::demo
