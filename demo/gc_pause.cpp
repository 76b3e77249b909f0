#include <fmt/format.h>

#include "demo/clients/clients.hpp"
#include "demo/clients/psql.hpp"
#include "demo/clients/redis_cli.hpp"
#include "demo/kit/account.hpp"
#include "demo/scenarios.hpp"
#include "demo/servers/guard_server.hpp"
#include "guard/error.hpp"
#ifdef FENCEGUARD_REDIS
#include "demo/servers/redis.hpp"
#endif

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{500};
constexpr milliseconds ttl_of_b{60'000};       // and of A when it starts again: both give it back
constexpr milliseconds beyond_the_lease{100};  // how much longer A is stopped, at least
constexpr milliseconds lock_wait{8'000};
constexpr std::string_view own_http = "http";
constexpr auto redis_cli_sentence =
    " Both are redis-cli, and what judges is the sidecar between them and Redis.";
constexpr auto psql_sentence =
    " Both are psql, and the sidecar between them and PostgreSQL has every transaction judged.";

// The guard of one run, and where its account is.
struct Site {
  GuardOptions guard;
  std::string resource = account;
  std::string place{};       // in a storage whose clients all write to it themselves
  bool via_sidecar = false;  // they are redis-cli or psql, at the guard's data side
};

Site site_of(const Harness& harness, const std::string& storage, const std::string& source,
             const std::string& resource) {
  const auto in_folder = [&](const char* file) {
    return fmt::format("sqlite:{}/{}", harness.folder(), file);
  };
  // A file of its own needs no floor, unless its tokens come from elsewhere.
  if (storage.empty())
    return {.guard = {.storage = in_folder("storage.db"), .source = source, .initialise = !source.empty()}};
  const auto& product = clients_of(Url::parse(storage));
  Site site{.guard = {.storage = storage, .source = source}, .resource = resource};
  if (product.open_fenced) site.place = "fenceguard_demo_" + resource.substr(resource.find('/') + 1);
  if (product.needs_state) site.guard.state = in_folder("state.db");
  site.guard.initialise = product.needs_state;
  site.guard.has_data_side = site.place.empty();
  return site;
}

std::string sentence_of(std::optional<std::int64_t> balance) {
  if (!balance) return fmt::format("no balance, should be {}: WRONG", expected);
  if (*balance == expected) return fmt::format("{}: both updates survive", *balance);
  const auto sentence = fmt::format("{}, should be {}", *balance, expected);
  if (*balance == expected - add_b) return fmt::format("{}: B's +{} is LOST", sentence, add_b);
  if (*balance == expected - add_a) return fmt::format("{}: A's +{} is LOST", sentence, add_a);
  return sentence + ": WRONG";
}

const char* lost_update_of(std::optional<std::int64_t> balance) {
  if (balance == expected) return "none";
  if (balance == expected - add_b) return "B";
  return balance == expected - add_a ? "A" : "other";
}

Outcome outcome_of(std::optional<std::int64_t> balance, const std::string& resource,
                   std::chrono::microseconds pause) {
  Outcome outcome{.sentence = sentence_of(balance)};
  outcome.details = {{"resource", resource},
                     {"ttl_ms", ttl.count()},
                     {"initial", Account::initial},
                     {"add_a", add_a},
                     {"add_b", add_b},
                     {"expected", expected},
                     {"final", nullptr},
                     {"lost_update", lost_update_of(balance)},
                     {"verdict", outcome.sentence},
                     {"pause_us", pause.count()}};
  if (balance) outcome.details["final"] = *balance;
  return outcome;
}

// Asks, and waits if it is held.
void take(Client& client, milliseconds lease) {
  if (!client.try_take(lease)) client.take(lease, lock_wait);
}

// A starts again: it knows of the refusal, and nothing of its work is left.
bool start_again(Client& a) {
  const auto first = a.token();
  a.roll_back();
  take(a, ttl_of_b);
  const bool is_done = a.add(add_a) && a.token() > first;
  return a.give_back() && is_done;
}

bool is_postgres(const std::string& storage) {
  return !storage.empty() && storage != own_http &&
         clients_of(Url::parse(storage)).schemes.front() == "postgres";
}

// The program that reads and writes the account, through the guard or round it.
decltype(ClientOptions::open_cli) cli_of(const Site& site, const GuardServer& guard, bool guarded) {
  if (!site.via_sidecar) return {};
  constexpr std::string_view scheme = "http://";
  const auto url = Url::parse(site.guard.storage);
  const auto sidecar = guarded ? guard.data().substr(scheme.size()) : std::string{};
#ifdef FENCEGUARD_POSTGRES
  if (is_postgres(site.guard.storage))
    return [options = postgres::psql_options(url, site.place, site.resource, sidecar)](Harness& harness) {
      return std::make_unique<Psql>(harness, options);
    };
#endif
#ifdef FENCEGUARD_REDIS
  return [options = redis::redis_cli_options(url, site.place, site.resource, sidecar)](Harness& harness) {
    return std::make_unique<RedisCli>(harness, options);
  };
#endif
  return {};
}

Outcome run(Harness& harness, const Site& site, bool guarded) {
  GuardServer guard{harness, site.guard};
  ClientOptions options{.storage = site.guard.storage,
                        .place = site.place,
                        .guarded = guarded,
                        .control = guard.control(),
                        .resource = site.resource,
                        .lock_lane = "lock service",
                        .open_cli = cli_of(site, guard, guarded)};
  const bool is_direct = !site.place.empty();
  if (guarded && !is_direct) options.guard = guard.data();
  Fixture fixture{harness, options};
  auto& [balance, a, b] = fixture;

  take(a, ttl);
  a.read();
  a.pause();
  a.begin_write(add_a);

  take(b, ttl_of_b);
  b.read();
  const auto written = b.write(add_b);
  b.give_back();

  a.stay_paused(ttl + beyond_the_lease);
  const auto pause = a.resume();
  const auto late = a.finish_write();
  const bool is_refused = late.verdict == "stale" && late.status == (is_direct ? 0U : 412U);
  const bool goes_on = is_refused && start_again(a);

  const auto final_balance = balance.balance_if_any();
  auto outcome = outcome_of(final_balance, site.resource, pause);
  outcome.as_expected = pause > ttl && written.is_admitted() &&
                        (guarded ? goes_on && final_balance == expected
                                 : late.is_lost_update && final_balance == expected - add_b);
  guard.end();
  return outcome;
}

Outcome run_via_sidecar(Harness& harness, const std::string& storage, const std::string& source,
                        const std::string& resource, bool guarded) {
  auto site = site_of(harness, storage, source, resource);
  site.via_sidecar = site.guard.has_data_side = true;
  return run(harness, site, guarded);
}

// With a Redis of its own where there is no storage.
Outcome run_at_own_redis(Harness& harness, const std::string& source, const std::string& resource,
                         bool guarded) {
#ifdef FENCEGUARD_REDIS
  const RedisServer own{harness};
  initialise_fences(harness, own.url());
  return run_via_sidecar(harness, own.url(), source, resource, guarded);
#else
  throw InvalidInput("--via sidecar: Redis is not part of this build");
#endif
}

bool has_sidecar(const std::string& storage) {
  return storage.empty() || is_postgres(storage) ||
         (storage != own_http && Url::parse(storage).scheme == "redis");
}

void require_usable(const std::string& storage, const std::string& source, bool via_sidecar) {
  if (!source.empty()) (void)clients_of(Url::parse(source));
  if (via_sidecar && !has_sidecar(storage))
    throw InvalidInput(
        "--via sidecar: the sidecar speaks the protocols of Redis and PostgreSQL: the storage is redis://… "
        "or "
        "postgres://…, or a Redis of its own");
  if (storage.empty() || storage == own_http) return;
  try {
    const auto& product = clients_of(Url::parse(storage));
    if (product.open_raw || product.open_fenced) return;
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--storage: {}", error.what()));
  }
  throw InvalidInput(fmt::format(
      "--storage: the demonstration also writes round the guard, and a {}: storage offers no way for that",
      Url::parse(storage).scheme));
}

}  // namespace

Scenario gc_pause(const std::string& storage, const std::string& source, bool via_sidecar) {
  require_usable(storage, source, via_sidecar);
  const auto name = storage.empty() ? account : "fenceguard-demo/" + Holder::random().id().substr(0, 12);
  return {.name = "gc-pause",
          .summary = "a client is stopped for longer than its lease lasts, then writes",
          .opening = fmt::format(
              "Clients A and B share the account {}, which holds {}, and one lock for it. A adds {}, B adds "
              "{}: in the end it must hold {}. A is stopped in the middle of its work, as a long garbage "
              "collection would stop it, until its lease of {} on the lock has run out. First the clients "
              "write straight into the storage, then every write carries its token and is judged.{}",
              name, Account::initial, add_a, add_b, expected, milliseconds_text(ttl),
              !via_sidecar           ? ""
              : is_postgres(storage) ? psql_sentence
                                     : redis_cli_sentence),
          .lanes = {"client A", "lock service", "client B", "storage"},
          .run =
              [=](Harness& harness, bool guarded) {
                // Its first run shows the account's name.
                const auto resource = guarded ? name + "b" : name;
                if (via_sidecar && storage.empty())
                  return run_at_own_redis(harness, source, resource, guarded);
                if (via_sidecar) return run_via_sidecar(harness, storage, source, resource, guarded);
                if (storage != own_http)
                  return run(harness, site_of(harness, storage, source, resource), guarded);
                const auto plain = harness.start({.arguments = {"demo-actor", "delayed-packet", "storage"}});
                const auto url = "http://" + plain->receive_line();
                return run(harness, site_of(harness, url, source, resource), guarded);
              },
          .way_without = "round the guard",
          .way_with = "through the guard"};
}

}  // namespace fenceguard::demo
