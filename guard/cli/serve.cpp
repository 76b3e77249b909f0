#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <thread>

#include "adapters/schemes.hpp"
#include "guard/cli/access.hpp"
#include "guard/cli/command.hpp"
#include "guard/cli/output.hpp"
#include "guard/error.hpp"
#include "guard/sidecar/refusal_log.hpp"
#include "guard/sidecar/sidecar.hpp"
#include "guard/wait_for.hpp"

namespace fenceguard::cli {
namespace {

constexpr std::array log_levels{"trace", "debug", "info", "warning", "error", "off"};

std::vector<Setting> settings_table() {
  using enum Kind;
  return {
      {"listen", address, "ADDR", "127.0.0.1:7420",
       "data side: HOST:PORT (port 0: a free one) or unix:/path; a storage that keeps no objects has none"},
      {"control", address, "ADDR", "127.0.0.1:7421", "control side, likewise"},
      {"probe", address, "ADDR", "", "/metrics, /healthz and /readyz alone, likewise"},
      {"storage", url, "URL", "sqlite:fenceguard.db", "what is protected"},
      {"source", url, "URL", "", "the token source; left out, the storage's own"},
      {"state", url, "URL", "", "where the fences are kept, for a storage that cannot keep them itself"},
      {"init", flag, "", "", "create missing state: draw a number from --source and make it the floor"},
      {"resource-depth", number, "N", "0", "the first N segments of a path are the resource; 0: all of them"},
      {"max-jump", number, "N", "1099511627776",
       "refuse a token so far above the highest one seen; 0: no bound"},
      {"cache", number, "ENTRIES", "100000", "fences kept in memory"},
      {"control-token-file", text, "FILE", "", "bearer tokens of the control side, with a role each"},
      {"control-host", text, "NAME", "", "a further host name that the control side is called by", true},
      {"body-limit", number, "BYTES", "8388608", "largest body of a request"},
      {"threads", number, "N", "1", "event loops"},
      {"drain-timeout", duration, "TIME", "10s", "how long requests may take to end after SIGTERM"},
      {"idle-timeout", duration, "TIME", "60s", "how long a connection may stay idle"},
      {"header-timeout", duration, "TIME", "10s", "how long a header block may take"},
      {"body-timeout", duration, "TIME", "60s", "how long a body may take"},
      {"log-level", text, "LEVEL", "info", "trace, debug, info, warning, error or off; on stderr"},
      {"example-config", flag, "", "", "print an INI file with every default, commented out"},
      config_setting,
  };
}

void start_log(const std::string& level) {
  if (std::ranges::find(log_levels, level) == log_levels.end()) {
    throw InvalidInput(fmt::format("--log-level: one of {}", fmt::join(log_levels, ", ")));
  }
  auto logger =
      std::make_shared<spdlog::logger>("fenceguard", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v", spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

// Signals are taken by sigwait on the main thread. REQUIRES: no other thread yet, so that all inherit the
// mask.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

// As many connections as the system lets us have.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::int64_t number_within(const Settings& settings, std::string_view name, std::int64_t least,
                           std::int64_t most) {
  const auto value = settings.number(name);
  if (value < least || value > most) throw InvalidInput(fmt::format("--{}: {} to {}", name, least, most));
  return value;
}

SidecarOptions sidecar_options(const Settings& settings, const Url& storage) {
  SidecarOptions options;
  options.listen = settings.text("listen");
  options.control = settings.text("control");
  options.probe = settings.text("probe");
  options.control_token_file = settings.text("control-token-file");
  options.control_hosts = settings.list("control-host");
  options.storage_scheme = schemes().find(storage).names.front();
  options.resource_depth =
      static_cast<std::size_t>(number_within(settings, "resource-depth", 0, Resource::bytes_max));
  options.threads = static_cast<unsigned>(number_within(settings, "threads", 1, 256));
  options.drain_timeout = settings.duration("drain-timeout");
  options.data_limits.body_bytes_max =
      static_cast<std::size_t>(number_within(settings, "body-limit", 0, 1LL << 40));
  options.data_limits.idle_max = settings.duration("idle-timeout");
  options.data_limits.header_max = settings.duration("header-timeout");
  options.data_limits.body_max = settings.duration("body-timeout");
  return options;
}

// What a server stands on, in the order in which it is made.
struct Parts {
  std::unique_ptr<TokenSource> separate_source;
  std::unique_ptr<Storage> storage;
  TokenSource* source = nullptr;
};

Parts open_parts(const Settings& settings, const Url& storage_url) {
  if (settings.is_given("state")) {
    throw InvalidInput(fmt::format("--state: a {}: storage keeps the fences with its data; leave it out",
                                   storage_url.scheme));
  }
  Parts parts;
  const bool is_separate = settings.is_given("source") && settings.text("source") != settings.text("storage");
  if (is_separate) parts.separate_source = schemes().open_source(*settings.url("source"));
  // A separate source went on while the state was away: its number must be the floor from the first moment
  // on.
  const StorageOptions options{
      .initialise = !is_separate,
      .jump_max = settings.number("max-jump"),
      .cache_entries = static_cast<std::size_t>(number_within(settings, "cache", 1, 1LL << 32))};
  parts.storage = schemes().open_storage(storage_url, options);
  parts.source = is_separate ? parts.separate_source.get() : parts.storage->own_source();
  const bool takes_floor = is_separate || (parts.source != nullptr && !parts.storage->initialises_itself());
  if (takes_floor && settings.is_on("init")) {
    const auto drawn = parts.source->draw();
    const auto floor = wait_for<std::int64_t>(
        [&](Done<std::int64_t> done) { parts.storage->fences().init(drawn.value(), std::move(done)); });
    spdlog::info("event=initialised floor={}", floor);
  }
  const auto status = parts.storage->fences().status();
  if (status.state != StoreState::ready) spdlog::warn("event=unavailable reason={}", quoted(status.reason));
  return parts;
}

// A storage without objects has no data side: its clients write to it themselves, and carry their claims
// there. Whoever asked for one is told so, and served the rest.
void leave_out_data_side(const Settings& settings, const Url& storage, SidecarOptions& options) {
  options.listen.clear();
  spdlog::log(settings.is_given("listen") ? spdlog::level::warn : spdlog::level::info,
              "event=\"no data side\" reason={}",
              quoted(fmt::format("the clients of a {}: storage write to it themselves, each under its claim; "
                                 "--listen has nothing to listen for",
                                 storage.scheme)));
}

void reload(Sidecar& sidecar) {
  try {
    sidecar.reload_tokens();
    spdlog::info("event=tokens_reloaded");
  } catch (const Error& error) {
    spdlog::error("event=tokens_kept reason={}", quoted(error.what()));
  }
}

// Ends the process at once when told a second time, while the sidecar drains.
void end_at_second_signal() {
  std::thread{[] {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    int number = 0;
    sigwait(&signals, &number);
    std::_Exit(128 + number);
  }}.detach();
}

int serve(const Settings& settings) {
  if (settings.is_on("example-config")) {
    print_out(example_configuration(settings_table()));
    return exit_done;
  }
  start_log(settings.text("log-level"));
  const auto signals = block_signals();
  raise_descriptor_limit();
  const auto storage_url = settings.url("storage").value();
  auto options = sidecar_options(settings, storage_url);
  const auto parts = open_parts(settings, storage_url);
  if (parts.storage->objects() == nullptr) leave_out_data_side(settings, storage_url, options);
  Sidecar sidecar{*parts.storage, parts.source, std::move(options)};
  const std::string data = sidecar.data_address().empty() ? "none" : sidecar.data_address();
  spdlog::info("event=listening data={} control={} storage={} version={}", data, sidecar.control_address(),
               storage_url.redacted(), FENCEGUARD_VERSION);
  print_out(fmt::format("listening data={} control={}\n", data, sidecar.control_address()));
  int number = 0;
  while (sigwait(&signals, &number) == 0 && number == SIGHUP) reload(sidecar);
  spdlog::info("event=stopping signal={}", number);
  end_at_second_signal();
  const bool is_clean = sidecar.stop();
  spdlog::info("event=stopped clean={}", is_clean);
  return exit_done;
}

}  // namespace

Command serve_command() {
  return {
      .name = "serve",
      .synopsis = "[--storage URL] [--source URL] [--listen ADDR] [--control ADDR] [OPTION…]",
      .summary = "run a guard in front of a storage",
      .settings = settings_table(),
      .run = serve,
      .notes =
          "Prints 'listening data=HOST:PORT control=HOST:PORT' when it is ready, with data=none for a "
          "storage whose clients write to it themselves (postgres:). SIGTERM and SIGINT drain and end it, "
          "SIGHUP reads the file of bearer tokens again."};
}

}  // namespace fenceguard::cli
