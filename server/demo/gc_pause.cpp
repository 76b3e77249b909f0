#include <fmt/format.h>

#include <boost/json.hpp>

#include "guard/error.hpp"
#include "guard/support/percent.hpp"
#include "server/demo/kit/account.hpp"
#include "server/demo/scenarios.hpp"
#include "server/demo/servers/guard_server.hpp"
#include "server/http/client.hpp"
#include "server/products.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds ttl{500};
constexpr milliseconds beyond_the_lease{100};  // how much longer A is stopped, at least
constexpr milliseconds lock_wait{8'000};
constexpr std::int64_t add_a = 50, add_b = 30, expected = 180;
constexpr std::string_view own_http = "http";

// Where one run takes place.
struct Site {
  GuardOptions guard;
  std::string resource = account;
  std::string place{};       // in a storage whose clients all write to it themselves
  bool is_borrowed = false;  // the storage is not ours: the account is removed at the end
};

Site site_of(const Harness& harness, const std::string& storage, const std::string& source,
             const std::string& resource) {
  Site site{.guard = {.storage = storage, .source = source}};
  const auto& folder = harness.folder();
  bool is_fresh = storage.empty();
  if (is_fresh) {
    site.guard.storage = fmt::format("sqlite:{}/storage.db", folder);
  } else {
    const auto& product = products().find(Url::parse(storage));
    site.resource = resource;
    site.is_borrowed = true;
    if (product.open_fenced_client) site.place = "fenceguard_demo_" + resource.substr(resource.find('/') + 1);
    if (product.needs_state) site.guard.state = fmt::format("sqlite:{}/state.db", folder);
    is_fresh = product.needs_state;
  }
  // A file of its own needs no floor, unless its tokens come from elsewhere.
  site.guard.initialise = is_fresh && !(source.empty() && site.guard.state.empty());
  site.guard.has_data_side = site.place.empty();
  return site;
}

// Through the guard and under the lock, as every client has to.
void remove_account(const GuardServer& guard, const std::string& resource) {
  http::Client control{guard.control()};
  http::Request asking{.method = "POST", .target = "/v1/leases", .fields = {}, .body = {}};
  asking.fields.add("Content-Type", "application/json");
  asking.body = boost::json::serialize(
      boost::json::object{{"resource", resource}, {"ttl_ms", 5'000}, {"wait_ms", 2'000}});
  const auto granted = control.send(asking);
  if (granted.status != 201) throw Unavailable("the demonstration's account could not be removed");
  const auto grant = boost::json::parse(granted.body).as_object();
  http::Request removal{
      .method = "DELETE", .target = '/' + percent_encode_path(resource), .fields = {}, .body = {}};
  removal.fields.add("Fencing-Token", grant.at("token").as_string().c_str());
  removal.fields.add("Fencing-Holder", grant.at("holder").as_string().c_str());
  if (http::Client{guard.data()}.send(removal).status >= 300)
    throw Unavailable("the demonstration's account could not be removed");
  removal.target = "/v1/leases" + removal.target;
  (void)control.send(removal);
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
void take(Client& client) {
  if (!client.try_take(ttl)) client.take(ttl, lock_wait);
}

// A starts again: it knows of the refusal, and nothing of its work is left.
bool start_again(Client& a) {
  const auto first = a.token();
  a.roll_back();
  take(a);
  const bool is_done = a.add(add_a) && a.token() > first;
  return a.give_back() && is_done;
}

Outcome run(Harness& harness, const Site& site, bool guarded) {
  GuardServer guard{harness, site.guard};
  Account balance{harness, site.guard.storage, site.place, site.resource};
  ClientOptions options{.storage = site.guard.storage,
                        .place = site.place,
                        .guarded = guarded,
                        .control = guard.control(),
                        .resource = site.resource,
                        .lock_lane = "lock service"};
  const bool is_direct = !site.place.empty();
  if (guarded && !is_direct) options.guard = guard.data();
  Client a{harness, "client A", options};
  Client b{harness, "client B", options};
  harness.restart_clock();

  take(a);
  a.read();
  a.pause();
  a.begin_write(add_a);

  take(b);
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
  if (site.is_borrowed && !is_direct) remove_account(guard, site.resource);
  guard.end();
  return outcome;
}

void require_usable(const std::string& storage, const std::string& source) {
  if (!source.empty()) (void)products().find(Url::parse(source));
  if (storage.empty() || storage == own_http) return;
  try {
    const auto& product = products().find(Url::parse(storage));
    if (product.open_raw_client || product.open_fenced_client) return;
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--storage: {}", error.what()));
  }
  throw InvalidInput(fmt::format(
      "--storage: the demonstration also writes round the guard, and a {}: storage offers no way for that",
      Url::parse(storage).scheme));
}

}  // namespace

Scenario gc_pause(const std::string& storage, const std::string& source) {
  require_usable(storage, source);
  const auto name = storage.empty() ? account : "fenceguard-demo/" + Holder::random().id().substr(0, 12);
  return {.name = "gc-pause",
          .summary = "a client is stopped for longer than its lease lasts, then writes",
          .opening = fmt::format("Clients A and B share the account {}, which holds {}, and one lock for it. "
                                 "A adds {}, B adds {}: in the "
                                 "end it must hold {}. A is stopped in the middle of its work, as a long "
                                 "garbage collection would stop it, "
                                 "until its lease of {} on the lock has run out. First the clients write "
                                 "straight into the storage, then "
                                 "every write carries its token and is judged.",
                                 name, Account::initial, add_a, add_b, expected, milliseconds_text(ttl)),
          .lanes = {"client A", "lock service", "client B", "storage"},
          .run =
              [=](Harness& harness, bool guarded) {
                // Its first run shows the account's name.
                const auto resource = guarded ? name + "b" : name;
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
