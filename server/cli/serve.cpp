#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <functional>
#include <future>
#include <thread>

#include "adapters/sqlite/file/file.hpp"
#include "guard/error.hpp"
#include "guard/support/wait_for.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/exec/hold_for.hpp"
#include "server/cli/serve_settings.hpp"
#include "server/cli/target/open_fencer.hpp"
#include "server/cli/target/open_storage.hpp"
#include "server/cli/target/open_target.hpp"
#include "server/cli/terminal/output.hpp"
#include "server/control/refusal_log.hpp"
#include "server/data/data_service.hpp"
#include "server/products.hpp"
#include "server/service_manager.hpp"
#include "server/sidecar.hpp"
#include "server/standby.hpp"
#include "server/state_owner.hpp"

namespace fenceguard::cli {
namespace {

// Opening takes no longer where no other process has the state.
constexpr std::chrono::milliseconds standby_after{300};
// What a service manager is asked for beyond what we mean to take.
constexpr std::chrono::milliseconds allowance{30'000};
// Looks at the event loops for each interval of the watchdog, and how much of it one look may take.
constexpr int looks_per_interval = 4;
// Between two tries to show that the owner of the state is dead.
constexpr std::chrono::milliseconds try_owner_again{1'000};
constexpr std::array log_levels{"trace", "debug", "info", "warning", "error", "off"};

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

// What a server stands on, in the order in which it is made.
struct Parts {
  std::unique_ptr<TokenSource> separate_source;
  std::unique_ptr<Storage> storage;
  TokenSource* source = nullptr;
};

// Another depth makes other names of the same paths, whose fences no claim has raised yet.
void require_same_depth(const Settings& settings, const Url& storage_url, Storage& storage) {
  if (storage.depth_record() == nullptr) return;
  const auto depth = static_cast<std::size_t>(settings.number("resource-depth"));
  const auto kept = storage.depth_record()->keep(depth);
  if (kept == depth) return;
  const auto state = fence_keeper(settings, storage_url).redacted();
  throw InvalidInput(fmt::format(
      "--resource-depth {0}: the fences in {1} are those of --resource-depth {2}, and under other "
      "names every stale token would be let in. Give --resource-depth {2}, or stop the guard and "
      "run 'fenceguard fence rebase --storage {1} --to-depth {0}', after which no token that was "
      "granted so far is admitted",
      depth, state, kept));
}

Parts open_parts(const Settings& settings, const Url& storage_url,
                 std::unique_ptr<TokenSource> separate_source) {
  Parts parts;
  const bool is_separate = separate_source != nullptr;
  parts.separate_source = std::move(separate_source);
  // A separate source went on while the state was away: its number must be the floor from the first moment
  // on.
  parts.storage = open_with_state(settings, storage_url, storage_options(settings, !is_separate));
  require_same_depth(settings, storage_url, *parts.storage);
  parts.source = is_separate ? parts.separate_source.get() : parts.storage->own_source();
  const bool takes_floor = is_separate || (parts.source != nullptr && !parts.storage->initialises_itself());
  if (takes_floor && settings.is_on("init")) {
    const auto drawn = parts.source->draw();
    const auto floor = wait_for<std::int64_t>(
        [&](Done<std::int64_t> done) { parts.storage->fences().init(drawn.value(), std::move(done)); });
    spdlog::info("event=initialised floor={}", floor);
  }
  const auto status = parts.storage->fences().status();
  if (status.state == StoreState::ready && !status.reason.empty() && settings.is_on("init"))
    throw Unavailable(fmt::format("--init: {}", status.reason));
  if (!status.reason.empty()) spdlog::warn("event=unavailable reason={}", fenceguard::quoted(status.reason));
  return parts;
}

// Null where the addresses are still those of the other guard, on this same machine: it waits without probes.
std::unique_ptr<Standby> open_standby(SidecarOptions& options) {
  try {
    auto standby = std::make_unique<Standby>(options.control, options.probe);
    options.control = standby->control_address();
    options.probe = standby->probe_address();
    spdlog::info("event=waiting reason=\"another guard has the state\" control={}", options.control);
    return standby;
  } catch (const Error& error) {
    spdlog::info("event=waiting reason=\"another guard has the state\" probes={}",
                 fenceguard::quoted(error.what()));
    return nullptr;
  }
}

// Null without --standby. Throws InvalidInput, and Unavailable for a state that asks for it.
std::unique_ptr<StateOwner> open_owner(const Settings& settings, const Url& storage_url) {
  const auto keeper = fence_keeper(settings, storage_url);
  const bool is_in_file = products().find(storage_url).needs_state && keeper.scheme == "sqlite";
  if (settings.is_on("standby")) {
    if (is_in_file) return std::make_unique<StateOwner>(keeper.path);
    throw InvalidInput(
        "--standby is for the guard of an http: storage; any number of guards can stand in front of others");
  }
  if (is_in_file) StateOwner::require_none(keeper.path);
  return nullptr;
}

// Returns once this process may open the state: the owner before has ended, or is of this machine, so that
// its lock tells the rest, or was shown to be dead by a fence method. Never because it is silent.
void own_state(StateOwner& owner, Fencer* fencer) {
  std::string waits_for;
  const TakeOver every_guard{"*", 0, 0};
  const bool can_prove = fencer != nullptr && fencer->can_cut(every_guard);
  const auto told = [](const FenceReport& report) {
    spdlog::info("event=fence_method method={} outcome={} resource=\"*\" detail={}", report.method,
                 to_string(report.result.outcome), fenceguard::quoted(report.result.detail));
  };
  for (;;) {
    const auto other = owner.other_machine();
    if (!other.empty() && other != std::exchange(waits_for, other)) {
      spdlog::warn(
          "event=waiting reason={}",
          fenceguard::quoted(fmt::format(
              "the guard on {} has the state, and no lock tells here whether it lives: {}", other,
              can_prove ? "a fence method must show that it is dead"
                        : "give a --fence-method that shows it (command:, http:), or end it in order")));
    }
    const bool is_free = other.empty() || (can_prove && fencer->try_methods(every_guard, told));
    // Nothing is opened before it is ours: who has the lock here may hand the state to another machine.
    const bool is_unlocked = !owner.is_on_this_machine() || !sqlite::GuardLock::is_taken(owner.state());
    if (is_free && is_unlocked && owner.take()) return;
    std::this_thread::sleep_for(try_owner_again);
  }
}

// Opens the parts; where that takes long, because another guard has the state, answers the probes meanwhile
// (healthy, not ready). A signal to stop ends the process: nothing has been served yet.
Parts await_parts(const Settings& settings, const Url& storage_url, const sigset_t& signals,
                  const ServiceManager& manager, SidecarOptions& options, StateOwner* owner) {
  const bool is_separate = settings.is_given("source") && settings.text("source") != settings.text("storage");
  auto source = is_separate ? products().open_source(*settings.url("source")) : nullptr;
  auto opening = std::async(std::launch::async, [&, source = std::move(source)]() mutable {
    if (owner != nullptr) own_state(*owner, options.fencer.get());
    return open_parts(settings, storage_url, std::move(source));
  });
  if (opening.wait_for(standby_after) == std::future_status::ready) return opening.get();
  const auto standby = open_standby(options);
  manager.waiting("opens the state, or waits for another guard that has it",
                  lock_wait_of(settings) + allowance);
  while (opening.wait_for(std::chrono::milliseconds{0}) != std::future_status::ready) {
    constexpr timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    const int number = sigtimedwait(&signals, nullptr, &pause);
    if (number == SIGTERM || number == SIGINT) {
      spdlog::info("event=stopped clean=true");
      std::_Exit(exit_done);
    }
  }
  return opening.get();
}

// A storage without objects has no data side: its clients write to it themselves, and carry their claims
// there. An operator that asked for one is told so; the rest is served.
void leave_out_data_side(const Settings& settings, const Url& storage, SidecarOptions& options) {
  const bool is_asked_for = settings.is_given("listen") && !options.listen.empty();
  options.listen.clear();
  options.resource_depth = 0;
  spdlog::log(is_asked_for ? spdlog::level::warn : spdlog::level::info, "event=\"no data side\" reason={}",
              fenceguard::quoted(
                  fmt::format("the clients of a {}: storage write to it themselves, each under its claim; "
                              "--listen has nothing to listen for",
                              storage.scheme)));
}

// A file that is bad is told, and what was read before stays: false.
bool reload(std::string_view what, const std::function<bool()>& read) {
  try {
    if (read()) spdlog::info("event={}_reloaded", what);
    return true;
  } catch (const Error& error) {
    spdlog::error("event={}_kept reason={}", what, fenceguard::quoted(error.what()));
    return false;
  }
}

void reload(Sidecar& sidecar, const ServiceManager& manager, const std::string& status) {
  manager.reloading();
  const std::array taken{
      reload("tokens", [&] { return sidecar.reload_tokens(); }),
      reload("keys", [&] { return sidecar.reload_keys(); }),
      reload("certificates", [&] { return sidecar.reload_certificates(); }),
      reload("upstream_certificates", [&] { return sidecar.reload_upstream_certificates(); })};
  const bool is_whole = std::ranges::count(taken, false) == 0;
  manager.ready(
      is_whole ? status
               : status + "; a file was bad at the last reload, and what it said before stays: see the log");
}

// The next signal; 0 where none came within limit.
int next_signal(const sigset_t& signals, std::chrono::milliseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec pause{.tv_sec = seconds.count(),
                       .tv_nsec = std::chrono::nanoseconds{limit - seconds}.count()};
  return std::max(0, sigtimedwait(&signals, nullptr, &pause));
}

bool answers(Sidecar& sidecar, std::chrono::milliseconds limit) noexcept {
  try {
    return sidecar.answers(limit);
  } catch (...) {
    return false;  // no memory to ask
  }
}

// Until a signal to stop, which it answers. The watchdog hears of us as long as every event loop answers: one
// that hangs holds up its share of the connections, and only a new process helps. It does not hear whether
// the storage answers, because a new process would find that as it is; /readyz tells that.
int serve_until_signal(Sidecar& sidecar, const ServiceManager& manager, const sigset_t& signals,
                       const std::string& status) {
  constexpr std::chrono::hours no_look{1};
  const auto pause = manager.watchdog() ? *manager.watchdog() / looks_per_interval : no_look;
  for (;;) {
    const int number = next_signal(signals, pause);
    if (number == SIGHUP) {
      reload(sidecar, manager, status);
    } else if (number != 0) {
      return number;
    }
    if (!manager.watchdog()) continue;
    if (answers(sidecar, pause)) {
      manager.keep_alive();
    } else {
      spdlog::error("event=hanging reason=\"an event loop did not answer within {} ms\"", pause.count());
    }
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
    print_out(example_configuration(serve_settings()));
    return exit_done;
  }
  start_log(settings.text("log-level"));
  const auto program = open_program(settings.text("hold-for"), settings.duration("hold-ttl"),
                                    hidden_variables());  // before there are threads
  const auto signals = block_signals();
  const ServiceManager manager;
  raise_descriptor_limit();
  const auto storage_url = settings.url("storage").value();
  auto options = sidecar_options(settings, storage_url);
  options.hold_for = program;
  const auto fencer = open_lane_fencer(settings, storage_url);  // outlives the storage
  options.fencer = fencer;
  const auto owner = open_owner(settings, storage_url);
  const auto parts = await_parts(settings, storage_url, signals, manager, options, owner.get());
  const bool is_served = dynamic_cast<ServedStorage*>(parts.storage.get()) != nullptr;
  // In front of PostgreSQL it is the second choice, for whoever asks for it.
  const bool is_asked_for = options.storage_scheme != "postgres" || settings.is_given("listen");
  if (!is_asked_for || (!is_served && parts.storage->objects() == nullptr))
    leave_out_data_side(settings, storage_url, options);
  Sidecar sidecar{*parts.storage, parts.source, std::move(options)};
  const std::string data = sidecar.data_address().empty() ? "none" : sidecar.data_address();
  const auto probe = sidecar.probe_address().empty() ? "" : fmt::format(" probe={}", sidecar.probe_address());
  spdlog::info("event=listening data={} control={}{} storage={} version={}", data, sidecar.control_address(),
               probe, storage_url.redacted(), FENCEGUARD_VERSION);
  print_out(fmt::format("listening data={} control={}{}\n", data, sidecar.control_address(), probe));
  const auto status =
      fmt::format("guards {}: data {}, control {}", storage_url.redacted(), data, sidecar.control_address());
  manager.ready(status);
  const int number = serve_until_signal(sidecar, manager, signals, status);
  spdlog::info("event=stopping signal={}", number);
  manager.stopping(settings.duration("drain-timeout") + allowance);
  end_at_second_signal();
  const bool is_clean = sidecar.stop();
  spdlog::info("event=stopped clean={}", is_clean);
  return program ? program->exit_status().value_or(exit_done) : exit_done;
}

}  // namespace

Command serve_command() {
  return {
      .name = "serve",
      .synopsis = "[--storage URL] [--source URL] [--listen ADDR] [--control ADDR] [OPTION…]",
      .summary = "run a guard in front of a storage",
      .settings = serve_settings(),
      .run = serve,
      .notes =
          "Prints 'listening data=HOST:PORT control=HOST:PORT' when it is ready, with data=none for "
          "--listen none, for a storage whose clients write to it themselves (mariadb:, zookeeper:, "
          "etcd:), for a "
          "postgres: storage without --listen, and "
          "probe=HOST:PORT at its end where "
          "there is a --probe. SIGTERM and SIGINT drain and end it, "
          "SIGHUP reads the files of bearer tokens, claim keys and certificates again. Under systemd it is a "
          "service of Type=notify, with a watchdog."};
}

}  // namespace fenceguard::cli
