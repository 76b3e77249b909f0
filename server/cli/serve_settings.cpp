#include "server/cli/serve_settings.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "guard/error.hpp"
#include "guard/support/private_file.hpp"
#include "server/cli/target/open_fencer.hpp"
#include "server/cli/target/open_storage.hpp"
#include "server/cli/target/open_target.hpp"
#include "server/net/address.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {
namespace {

using namespace std::chrono_literals;

std::int64_t number_within(const Settings& settings, std::string_view name, std::int64_t least,
                           std::int64_t most) {
  const auto value = settings.number(name);
  if (value < least || value > most) throw InvalidInput(fmt::format("--{}: {} to {}", name, least, most));
  return value;
}

// So few descriptors are open where no client is connected: of threads, listeners, the state, and some for
// the control side.
constexpr rlim_t descriptors_kept = 64;
constexpr rlim_t descriptors_per_thread = 4;
constexpr std::size_t connections_min = 4;

// As many connections of the data side as leave room for everything else, and for so many percent of them to
// the upstream.
std::size_t connections_within_limit(unsigned threads, unsigned upstream_percent, std::size_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
  const auto kept = descriptors_kept + descriptors_per_thread * threads;
  const auto left = limit.rlim_cur > kept ? limit.rlim_cur - kept : 0;
  return std::clamp(static_cast<std::size_t>(left * 100 / (100 + upstream_percent)), connections_min, most);
}

// A setting that would have no effect is refused: the operator that gives it counts on it.
void require_tls_whole(const Settings& settings, const Url& storage) {
  for (const auto* side : {"tls", "upstream"}) {
    if (settings.text(fmt::format("{}-certificate", side)).empty() !=
        settings.text(fmt::format("{}-key", side)).empty())
      throw InvalidInput(fmt::format("--{0}-certificate and --{0}-key come together", side));
  }
  if (!settings.text("tls-client-ca").empty() && settings.text("tls-certificate").empty()) {
    throw InvalidInput(
        "--tls-client-ca is for a data side over TLS: give --tls-certificate and --tls-key too");
  }
  for (const auto* name : {"upstream-ca", "upstream-certificate"}) {
    if (!settings.text(name).empty() && storage.scheme != "https")
      throw InvalidInput(fmt::format("--{} is for an https: storage", name));
  }
}

bool is_redis(const Url& storage) {
  return products().find(storage).schemes.front() == "redis";
}

bool is_postgres(const Url& storage) {
  return products().find(storage).schemes.front() == "postgres";
}

void require_hold_usable(const Settings& settings, const Url& storage, const SidecarOptions& options) {
  if (options.hold.empty()) {
    if (settings.text("hold-ttl") != "10s") throw InvalidInput("--hold-ttl is for the leases of --hold");
    if (settings.text("hold-reconnect") != "refuse")
      throw InvalidInput("--hold-reconnect is for the clients of --hold");
    if (!settings.text("hold-for").empty()) throw InvalidInput("--hold-for is for the clients of --hold");
    return;
  }
  if (!is_postgres(storage) && !is_redis(storage))
    throw InvalidInput("--hold is for a postgres: or redis: storage, whose clients the sidecar speaks for");
  if (options.listen.empty() || (is_postgres(storage) && !settings.is_given("listen")))
    throw InvalidInput("--hold holds for the clients of the data side: give --listen HOST:PORT too");
  if (is_postgres(storage) && settings.text("unfenced") != "read")
    throw InvalidInput("--unfenced has nothing to say beside --hold: every session has the held claims");
  if (options.hold_takes_any_program && !settings.text("hold-for").empty())
    throw InvalidInput("--hold-for lets in one program, --hold-reconnect allow any: give one of them");
  require_sensible_ttl(options.hold_ttl);
}

bool takes_any_program(const std::string& reconnect) {
  if (reconnect != "refuse" && reconnect != "allow") throw InvalidInput("--hold-reconnect: refuse or allow");
  return reconnect == "allow";
}

Permissions permissions_of(const Settings& settings, const Url& storage) {
  for (const auto& [name, unless] :
       {std::pair{"statement-limit", std::int64_t{16} << 20}, {"max-connections", 0}}) {
    if (settings.number(name) != unless && !is_postgres(storage))
      throw InvalidInput(fmt::format("--{} is for a postgres: storage", name));
  }
  // A file of settings may name each with its default.
  const std::pair<const char*, bool> asked[] = {
      {"unfenced", settings.text("unfenced") != "read"},
      {"allow-admin", settings.is_on("allow-admin")},
      {"allow-scripts", settings.is_on("allow-scripts")},
      {"unsafe-eviction", settings.is_on("unsafe-eviction")},
      {"data-password-file", !settings.text("data-password-file").empty()}};
  for (const auto& [name, is_asked] : asked) {
    const bool is_shared = std::string_view{name} == "unfenced" && is_postgres(storage);
    if (is_asked && !is_redis(storage) && !is_shared)
      throw InvalidInput(fmt::format("--{} is for a redis: storage", name));
  }
  Permissions permissions{.admin = settings.is_on("allow-admin"), .scripts = settings.is_on("allow-scripts")};
  const auto unfenced = settings.text("unfenced");
  if (unfenced == "refuse") {
    permissions.unfenced = Unfenced::refuse;
  } else if (unfenced == "allow") {
    permissions.unfenced = Unfenced::allow;
  } else if (unfenced != "read") {
    throw InvalidInput("--unfenced: read, refuse or allow");
  }
  return permissions;
}

// The first line of the file.
std::string password_in(const std::string& path) {
  if (path.empty()) return {};
  const auto text = read_private_file("the file of --data-password-file", path, 1024);
  auto line = text.substr(0, text.find('\n'));
  if (line.ends_with('\r')) line.pop_back();
  if (line.empty())
    throw InvalidInput(fmt::format("--data-password-file: the first line of {} is empty", path));
  return line;
}

}  // namespace

std::vector<Setting> serve_settings() {
  using enum Kind;
  return {
      {"listen", address, "ADDR", "127.0.0.1:7420",
       "data side: HOST:PORT (port 0: a free one), unix:/path, or none for the control side alone; "
       "mariadb:, zookeeper: and etcd: have none, and postgres: one where this is given"},
      {"control", address, "ADDR", "127.0.0.1:7421", "control side: HOST:PORT or unix:/path"},
      {"probe", address, "ADDR", "", "/metrics, /healthz and /readyz alone, likewise"},
      {"storage", url, "URL", "sqlite:fenceguard.db", "what is protected"},
      {"source", url, "URL", "", "the token source; left out, the storage's own"},
      state_setting,
      {"hold", resource, "RESOURCE", "",
       "postgres: and redis: storage: hold its lease for all clients of the data side, which bring no claim; "
       "each "
       "writes under it, or is refused while another holds it",
       true},
      {"hold-ttl", duration, "TIME", "10s", "time to live of the leases of --hold"},
      {"hold-for", text, "PID|COMMAND", "",
       "the program whose connections alone --hold lets in: COMMAND is run by /bin/sh, in a fresh start "
       "under each "
       "lease, and ended when it is lost (SIGTERM, SIGKILL 5 s later, or half of --hold-ttl); when it ends "
       "by itself, serve ends "
       "with its "
       "status. PID is let in under the first lease, and must have read nothing before"},
      {"hold-reconnect", text, "WHICH", "refuse",
       "a program that may have begun before the lease of --hold was taken: refuse it until it says that it "
       "begins anew, or allow. Danger: its driver connects again unnoticed after a loss, and writes from "
       "what "
       "was read before are admitted. Allow only where each transaction reads what it writes from"},
      {"init", flag, "", "", "create missing state: draw a number from --source and make it the floor"},
      {"resource-depth", number, "N", "0",
       "the first N segments of a path are the resource; 0: all of them. Kept with the fences: another is "
       "refused"},
      {"max-jump", number, "N", "1099511627776",
       "refuse a client's token so far above the highest one seen; 0: no bound"},
      {"cache", number, "ENTRIES", "100000", "fences kept in memory"},
      {"control-token-file", file, "FILE", "", "bearer tokens of the control side, with a role each"},
      {"control-host", text, "NAME", "", "a further host name that the control side is called by", true},
      {"data-host", text, "NAME", "",
       "a host name that the data side is called by; left out, on loopback only its own, else every", true},
      {"claim-key", file, "FILE", "",
       "keys that sign the claims of leases granted here: one or two lines KEYID BASE64URL"},
      {"claim-space", text, "NAME", "fenceguard",
       "the namespace that is signed: one for all whose tokens are comparable"},
      {"require-signature", flag, "", "", "refuse claims that none of the keys of --claim-key signed"},
      {"body-limit", number, "BYTES", "",
       "largest body of a request, or command of Redis; left out, 8388608, for Redis 67108864, and none in "
       "front of an http: storage"},
      {"statement-limit", number, "BYTES", "16777216",
       "postgres: storage: longest statement of a session with a claim"},
      {"max-connections", number, "N", "0",
       "postgres: storage: connections at a time; 0: as many as the system lets it have"},
      {"unfenced", text, "HOW", "read",
       "redis: and postgres: storage: what a client may do without a claim: read, refuse (nothing) or allow "
       "(everything)"},
      {"allow-admin", flag, "", "", "redis: storage: relay commands for administrators, FLUSHALL among them"},
      {"allow-scripts", flag, "", "",
       "redis: storage: relay scripts of clients, which can write keys that they do not declare"},
      {"unsafe-eviction", flag, "", "",
       "redis: storage: start, and go on, where maxmemory-policy may evict fences: stale writes may then "
       "land"},
      {"data-password-file", file, "FILE", "",
       "redis: storage: the password that clients of the data side say (AUTH), where the URL has Redis's "
       "own"},
      {"threads", number, "N", "0", "event loops; 0: one for each core"},
      {"settle", duration, "TIME", "30s",
       "http: storage: for so long a resource stays closed after a write whose end was not seen; redis: "
       "storage: for so long what was sent on a lost connection may take effect where Redis cannot end it"},
      {"settled", flag, "", "",
       "http: storage: a state that is new does not wait for the settle time: nothing that a guard forwarded "
       "before is under way any more"},
      {"upstream-timeout", duration, "TIME", "30s",
       "http: storage: how long an answer may take; past that, a write's outcome is unknown"},
      {"lane-waiting", number, "CLAIMS", "1000", "http: storage: claims that may wait for one resource"},
      {"lanes-waiting", number, "CLAIMS", "10000", "http: storage: claims that may wait in all"},
      fence_method_setting,
      fence_on_failure_setting,
      fence_timeout_setting,
      {"forward-claim", flag, "", "", "http: storage: pass the fencing headers on"},
      {"lock-wait", duration, "TIME", "1s",
       "how long to wait for another guard that has the state; it is let in when that one is dead"},
      {"standby", flag, "", "",
       "http: storage: wait without end for the state, and take it over when the guard that has it is dead: "
       "on "
       "this machine, when its lock is free; on another one, when a --fence-method has shown it"},
      {"tls-certificate", file, "FILE", "", "data side over TLS: our certificate with its chain, in PEM"},
      {"tls-key", file, "FILE", "", "its key"},
      {"tls-client-ca", file, "FILE", "", "clients must show a certificate that one of these has signed"},
      {"upstream-ca", file, "FILE", "",
       "https: storage: who may have signed its certificate; left out, the "
       "system's list"},
      {"upstream-certificate", file, "FILE", "", "https: storage: the certificate that we show"},
      {"upstream-key", file, "FILE", "", "its key"},
      {"drain-timeout", duration, "TIME", "10s", "how long requests may take to end after SIGTERM"},
      {"idle-timeout", duration, "TIME", "60s",
       "how long a connection may stay idle; left out, without end in front of Redis, whose clients pool "
       "them"},
      {"header-timeout", duration, "TIME", "10s", "how long a header block may take"},
      {"body-timeout", duration, "TIME", "60s",
       "how long a body may take; in front of PostgreSQL and Redis, how long the server may say nothing to a "
       "client "
       "that has gone, of what it had sent before"},
      {"log-level", text, "LEVEL", "info", "trace, debug, info, warning, error or off; on stderr"},
      {"example-config", flag, "", "", "print an INI file with every default, commented out"},
      config_setting,
  };
}

SidecarOptions sidecar_options(const Settings& settings, const Url& storage) {
  SidecarOptions options;
  options.listen = settings.text("listen") == "none" ? "" : settings.text("listen");
  options.control = settings.text("control");
  options.probe = settings.text("probe");
  // Here, before a storage is opened, which may take its time.
  for (const auto* address : {&options.listen, &options.control, &options.probe})
    if (!address->empty()) (void)net::Address::parse(*address);
  options.control_token_file = settings.text("control-token-file");
  options.control_hosts = settings.list("control-host");
  options.data_hosts = settings.list("data-host");
  options.claim_key_file = settings.text("claim-key");
  options.claim_space = settings.text("claim-space");
  options.require_signature = settings.is_on("require-signature");
  if (options.require_signature && options.claim_key_file.empty()) {
    throw InvalidInput("--require-signature needs the keys of --claim-key");
  }
  options.storage_scheme = products().find(storage).schemes.front();
  options.storage_name = storage.redacted();
  options.source_name = settings.url("source").value_or(fence_keeper(settings, storage)).redacted();
  options.resource_depth =
      static_cast<std::size_t>(number_within(settings, "resource-depth", 0, Resource::bytes_max));
  options.threads = static_cast<unsigned>(number_within(settings, "threads", 0, 256));
  if (options.threads == 0) options.threads = std::max(1u, std::thread::hardware_concurrency());
  options.drain_timeout = settings.duration("drain-timeout");
  if (settings.is_given("body-limit")) {
    options.data_limits.body_bytes_max =
        static_cast<std::size_t>(number_within(settings, "body-limit", 0, 1LL << 50));
  } else if (products().find(storage).needs_state) {
    options.data_limits.body_bytes_max = std::numeric_limits<std::size_t>::max();
  } else if (is_redis(storage)) {
    options.data_limits.body_bytes_max = std::size_t{64} << 20;
  }
  if (is_postgres(storage))
    options.data_limits.body_bytes_max =
        static_cast<std::size_t>(number_within(settings, "statement-limit", 1024, 1LL << 30));
  options.permissions = permissions_of(settings, storage);
  for (const auto& name : settings.list("hold")) options.hold.emplace_back(name);
  options.hold_ttl = settings.duration("hold-ttl");
  options.hold_takes_any_program = takes_any_program(settings.text("hold-reconnect"));
  require_hold_usable(settings, storage, options);
  options.data_password = password_in(settings.text("data-password-file"));
  options.data_limits.idle_max = settings.duration("idle-timeout");
  options.data_limits.header_max = settings.duration("header-timeout");
  options.data_limits.body_max = settings.duration("body-timeout");
  for (const auto* name : {"idle-timeout", "header-timeout", "body-timeout"}) {
    if (settings.duration(name) < 100ms) throw InvalidInput(fmt::format("--{}: at least 100ms", name));
  }
  if ((is_redis(storage) || is_postgres(storage)) && !settings.is_given("idle-timeout"))
    options.data_limits.idle_max = 0ms;
  const bool has_upstream = products().find(storage).needs_state || is_redis(storage);
  // Not all clients have a request under way at a time; of PostgreSQL each has a connection of its own.
  const unsigned upstream_percent = is_postgres(storage) ? 100 : has_upstream ? 50 : 0;
  const auto connections = number_within(settings, "max-connections", 0, 1LL << 20);
  if (is_postgres(storage) && connections > 0)
    options.data_limits.connections_max = static_cast<std::size_t>(connections);
  options.data_limits.connections_max =
      connections_within_limit(options.threads, upstream_percent, options.data_limits.connections_max);
  options.tls = {settings.text("tls-certificate"), settings.text("tls-key"), settings.text("tls-client-ca")};
  require_tls_whole(settings, storage);
  return options;
}

std::chrono::milliseconds lock_wait_of(const Settings& settings) {
  return settings.is_on("standby") ? std::chrono::hours{24 * 1'000} : settings.duration("lock-wait");
}

StorageOptions storage_options(const Settings& settings, bool initialise) {
  StorageOptions options;
  options.initialise = initialise;
  options.jump_max = settings.number("max-jump");
  options.cache_entries = static_cast<std::size_t>(number_within(settings, "cache", 1, 1LL << 32));
  options.lock_wait = lock_wait_of(settings);
  options.refuses_evicting = !settings.is_on("unsafe-eviction");
  options.lane.settle = settings.duration("settle");
  options.lane.is_settled = settings.is_on("settled");
  options.lane.upstream_timeout = settings.duration("upstream-timeout");
  // What the kernel gives up, it must give up well before the settle time is over.
  for (const auto& [name, shortest] : {std::pair{"settle", 250ms}, std::pair{"upstream-timeout", 10ms}}) {
    if (settings.duration(name) < shortest)
      throw InvalidInput(fmt::format("--{}: at least {}ms", name, shortest.count()));
  }
  options.lane.waiting_per_resource_max =
      static_cast<std::size_t>(number_within(settings, "lane-waiting", 0, 1LL << 32));
  options.lane.waiting_max = static_cast<std::size_t>(number_within(settings, "lanes-waiting", 0, 1LL << 32));
  options.lane.forward_claim = settings.is_on("forward-claim");
  options.lane.upstream_ca_file = settings.text("upstream-ca");
  options.lane.upstream_certificate_file = settings.text("upstream-certificate");
  options.lane.upstream_key_file = settings.text("upstream-key");
  return options;
}

}  // namespace fenceguard::cli
