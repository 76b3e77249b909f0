#include "server/cli/serve_settings.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "guard/error.hpp"
#include "server/cli/target/open_storage.hpp"
#include "server/cli/target/open_target.hpp"
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

// As many connections of the data side as leave room for everything else, and for half as many to the
// upstream: not all clients have a request under way at a time.
std::size_t connections_within_limit(unsigned threads, bool has_upstream, std::size_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
  const auto kept = descriptors_kept + descriptors_per_thread * threads;
  const auto left = limit.rlim_cur > kept ? limit.rlim_cur - kept : 0;
  return std::clamp(static_cast<std::size_t>(has_upstream ? left * 2 / 3 : left), connections_min, most);
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

}  // namespace

std::vector<Setting> serve_settings() {
  using enum Kind;
  return {
      {"listen", address, "ADDR", "127.0.0.1:7420",
       "data side: HOST:PORT (port 0: a free one) or unix:/path; a storage that keeps no objects has none"},
      {"control", address, "ADDR", "127.0.0.1:7421", "control side, likewise"},
      {"probe", address, "ADDR", "", "/metrics, /healthz and /readyz alone, likewise"},
      {"storage", url, "URL", "sqlite:fenceguard.db", "what is protected"},
      {"source", url, "URL", "", "the token source; left out, the storage's own"},
      state_setting,
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
       "largest body of a request; left out, 8388608, and none in front of an http: storage"},
      {"threads", number, "N", "0", "event loops; 0: one for each core"},
      {"settle", duration, "TIME", "30s",
       "http: storage: for so long a resource stays closed after a write whose end was not seen"},
      {"upstream-timeout", duration, "TIME", "30s",
       "http: storage: how long an answer may take; past that, a write's outcome is unknown"},
      {"lane-waiting", number, "CLAIMS", "1000", "http: storage: claims that may wait for one resource"},
      {"lanes-waiting", number, "CLAIMS", "10000", "http: storage: claims that may wait in all"},
      {"forward-claim", flag, "", "", "http: storage: pass the fencing headers on"},
      {"lock-wait", duration, "TIME", "1s",
       "how long to wait for another guard that has the state; it is let in when that one is dead"},
      {"tls-certificate", file, "FILE", "", "data side over TLS: our certificate with its chain, in PEM"},
      {"tls-key", file, "FILE", "", "its key"},
      {"tls-client-ca", file, "FILE", "", "clients must show a certificate that one of these has signed"},
      {"upstream-ca", file, "FILE", "",
       "https: storage: who may have signed its certificate; left out, the "
       "system's list"},
      {"upstream-certificate", file, "FILE", "", "https: storage: the certificate that we show"},
      {"upstream-key", file, "FILE", "", "its key"},
      {"drain-timeout", duration, "TIME", "10s", "how long requests may take to end after SIGTERM"},
      {"idle-timeout", duration, "TIME", "60s", "how long a connection may stay idle"},
      {"header-timeout", duration, "TIME", "10s", "how long a header block may take"},
      {"body-timeout", duration, "TIME", "60s", "how long a body may take"},
      {"log-level", text, "LEVEL", "info", "trace, debug, info, warning, error or off; on stderr"},
      {"example-config", flag, "", "", "print an INI file with every default, commented out"},
      config_setting,
  };
}

SidecarOptions sidecar_options(const Settings& settings, const Url& storage) {
  SidecarOptions options;
  options.listen = settings.text("listen");
  options.control = settings.text("control");
  options.probe = settings.text("probe");
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
  }
  options.data_limits.idle_max = settings.duration("idle-timeout");
  options.data_limits.header_max = settings.duration("header-timeout");
  options.data_limits.body_max = settings.duration("body-timeout");
  for (const auto* name : {"idle-timeout", "header-timeout", "body-timeout"}) {
    if (settings.duration(name) < 100ms) throw InvalidInput(fmt::format("--{}: at least 100ms", name));
  }
  options.data_limits.connections_max = connections_within_limit(
      options.threads, products().find(storage).needs_state, options.data_limits.connections_max);
  options.tls = {settings.text("tls-certificate"), settings.text("tls-key"), settings.text("tls-client-ca")};
  require_tls_whole(settings, storage);
  return options;
}

StorageOptions storage_options(const Settings& settings, bool initialise) {
  StorageOptions options;
  options.initialise = initialise;
  options.jump_max = settings.number("max-jump");
  options.cache_entries = static_cast<std::size_t>(number_within(settings, "cache", 1, 1LL << 32));
  options.lock_wait = settings.duration("lock-wait");
  options.lane.settle = settings.duration("settle");
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
