#include <fmt/format.h>

#include "guard/error.hpp"
#include "guard/support/wait_for.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/target/open_storage.hpp"
#include "server/cli/target/open_target.hpp"
#include "server/cli/terminal/output.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {
namespace {

constexpr Setting fence_source_setting{.name = "source",
                                       .kind = Kind::url,
                                       .placeholder = "URL",
                                       .help = "the token source, where it is not the storage's own"};
constexpr Setting token_setting{.name = "token",
                                .kind = Kind::token,
                                .placeholder = "NUMBER",
                                .help = "the claim's token",
                                .is_required = true};
constexpr Setting holder_setting{
    .name = "holder", .kind = Kind::holder, .placeholder = "ID", .help = "the claim's holder"};

using SourcePointer = std::unique_ptr<TokenSource>;

// The source of --source; null if the storage's own is meant.
SourcePointer separate_source(const Settings& settings) {
  if (!settings.is_given("source")) return nullptr;
  const auto url = *settings.url("source");
  products().require_present(url);
  return products().open_source(url);
}

enum class Through { guard, fences_alone };

// A guard of our own, or where it is stopped its fences alone. A separate source means that missing state
// must be created by 'fence init'.
std::unique_ptr<LocalFences> open_local(const Settings& settings, const StorageOptions& options,
                                        SourcePointer source, Through through = Through::guard) {
  auto storage = settings.url("storage");
  if (!storage) throw InvalidInput("--storage is missing");
  const bool is_kept_elsewhere = products().find(*storage).needs_state;
  const bool is_only_looked_at = options.mode == StorageOptions::Mode::inspect;
  const bool is_alone = is_kept_elsewhere && (through == Through::fences_alone || is_only_looked_at);
  try {
    auto opened = is_alone ? products().open_storage(fence_keeper(settings, *storage), options)
                           : open_with_state(settings, *storage, options);
    return std::make_unique<LocalFences>(std::move(opened), std::move(source));
  } catch (const Unavailable& error) {
    if (options.mode == StorageOptions::Mode::inspect) throw;
    throw Unavailable(fmt::format("{} (a guard that is running is reached by --server)", error.what()));
  }
}

// The same for all but 'fence init', which creates what is not there.
std::unique_ptr<LocalFences> open_present(const Settings& settings, const StorageOptions& options,
                                          SourcePointer source, Through through = Through::guard) {
  if (const auto storage = settings.url("storage"))
    products().require_present(fence_keeper(settings, *storage));
  return open_local(settings, options, std::move(source), through);
}

// The guard of --server, or the one that is opened here; beside a running guard only to be looked at.
std::unique_ptr<Fences> open_fences(const Settings& settings, StorageOptions::Mode mode,
                                    SourcePointer source = nullptr) {
  const bool is_remote = settings.is_given("server");
  if (is_remote == settings.is_given("storage")) throw InvalidInput("give either --storage or --server");
  if (is_remote && source)
    throw InvalidInput("--server names a running guard with its own source; give it alone");
  if (is_remote) return std::make_unique<RemoteFences>(open_server(settings), given_signature(settings));
  return open_present(settings, {.mode = mode}, std::move(source));
}

Report fence_report(const Resource& resource, const Fence& fence) {
  Report report;
  report.add("resource", resource.name()).add("token", fence.token);
  if (fence.sequence) report.add("sequence", to_string(*fence.sequence));
  report.add_flag("closed", fence.closed);
  return report;
}

int show(const Settings& settings) {
  const auto resource = settings.resource();
  const auto [view, quarantine_left] = open_fences(settings, StorageOptions::Mode::inspect)->show(resource);
  if (!view.record) {
    complain(view.floor > 0 ? fmt::format("not found: the resource has no record of its own; the floor is {}",
                                          view.floor)
                            : "not found: the resource has no record of its own");
    return exit_refused;
  }
  auto report = fence_report(resource, *view.record);
  report.add_token("floor", view.floor);
  const bool as_json = settings.is_on("json");
  if (quarantine_left.count() > 0 && as_json) {
    report.add_number("quarantined_ms", quarantine_left.count());
  } else if (quarantine_left.count() > 0) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(quarantine_left);
    report.add("lane", fmt::format("quarantined, {} s left", seconds.count()));
  }
  report.print(as_json);
  return exit_done;
}

int list(const Settings& settings) {
  const auto listing = listing_of(settings);
  const auto page = open_fences(settings, StorageOptions::Mode::inspect)->list(listing);
  std::vector<ListedEntry> entries;
  for (const auto& [resource, fence] : page.entries)
    entries.push_back({fence_report(resource, fence), fence.closed ? " closed" : ""});
  print_page("fences", entries, page.has_more, settings.is_on("json"));
  return exit_done;
}

int advance(const Settings& settings) {
  const Claim claim{settings.resource(), settings.token(), settings.holder(), std::nullopt};
  const auto ruling = open_fences(settings, StorageOptions::Mode::guard)->advance(claim);
  Report report;
  report.add("resource", claim.resource.name()).add("verdict", to_string(ruling.verdict));
  report.add_token("highest", ruling.highest).print(settings.is_on("json"));
  return ruling.verdict == Verdict::admitted ? exit_done : exit_refused;
}

int revoke(const Settings& settings) {
  const auto resource = settings.resource();
  const auto view =
      open_fences(settings, StorageOptions::Mode::guard, separate_source(settings))->revoke(resource);
  if (!view.record) {
    complain("not found: the resource has neither a fence nor a lease to revoke");
    return exit_refused;
  }
  fence_report(resource, *view.record).print(settings.is_on("json"));
  return exit_done;
}

int compact(const Settings& settings) {
  const auto fences = open_fences(settings, StorageOptions::Mode::guard, separate_source(settings));
  const auto done = fences->compact();
  if (!done) {
    complain("refused: the source draws tokens from several counters, so no floor can stand for its fences");
    return exit_refused;
  }
  Report report;
  report.add_number("dropped", done->dropped);
  report.add("floor", std::to_string(done->floor)).print(settings.is_on("json"));
  return exit_done;
}

// A source in the very file of the fences is created with it.
SourcePointer source_to_draw_from(const Settings& settings) {
  if (!settings.is_given("source")) return nullptr;
  const auto source = settings.text("source");
  const bool is_created_here = source == settings.text("storage") || source == settings.text("state");
  return is_created_here ? products().open_source(*settings.url("source")) : separate_source(settings);
}

// New data with numbers of its own need no floor. What was there before may have been restored, and its own
// source is asked for a number like any other.
bool was_there(const Settings& settings) {
  return open_local(settings, {}, nullptr)->store().status().state != StoreState::uninitialised;
}

int init(const Settings& settings) {
  if (settings.is_given("source") && settings.is_given("floor")) {
    throw InvalidInput("give --source, which a number is drawn from, or --floor, not both");
  }
  const bool is_own = !settings.is_given("source") && !settings.is_given("floor");
  const bool is_restored = is_own && was_there(settings);
  const auto fences = open_local(settings, {.initialise = is_own}, source_to_draw_from(settings));
  if (is_own && fences->source() == nullptr) {
    throw InvalidInput(
        "give --source, which a number is drawn from, or --floor: this storage has no source of its own");
  }
  std::int64_t floor = 0;
  if (settings.is_given("floor")) floor = settings.number("floor");
  if (settings.is_given("source") || (is_own && (is_restored || !fences->initialises_itself())))
    floor = fences->source()->draw().value();
  const auto result =
      wait_for<std::int64_t>([&](Done<std::int64_t> done) { fences->store().init(floor, std::move(done)); });
  Report{}.add("floor", std::to_string(result)).print(settings.is_on("json"));
  return exit_done;
}

// Another depth for the paths, under a floor that no token seen so far passes.
int change_depth(const Settings& settings) {
  const auto depth = settings.number("to-depth");
  if (depth > static_cast<std::int64_t>(Resource::bytes_max))
    throw InvalidInput(fmt::format("--to-depth: 0 to {}", Resource::bytes_max));
  const auto fences = open_present(settings, {}, nullptr, Through::fences_alone);
  auto* record = fences->depth_record();
  if (record == nullptr) throw InvalidInput("--to-depth: this storage is not served by paths");
  const auto floor = record->change(static_cast<std::size_t>(depth));
  Report{}
      .add_number("resource_depth", depth)
      .add("floor", std::to_string(floor))
      .print(settings.is_on("json"));
  return exit_done;
}

int rebase(const Settings& settings) {
  const bool is_of_fence = settings.is_given("resource") && settings.is_given("to");
  const bool is_of_depth =
      settings.is_given("to-depth") && !settings.is_given("resource") && !settings.is_given("to");
  if (is_of_depth) return change_depth(settings);
  if (!is_of_fence || settings.is_given("to-depth"))
    throw InvalidInput("give --resource and --to, or --to-depth alone");
  const auto resource = settings.resource();
  const auto to = settings.token("to");
  const auto by = settings.is_given("by") ? settings.text("by") : user_at_host();
  const auto fences = open_present(settings, {}, nullptr, Through::fences_alone);
  const auto before = fences->show(resource).view.highest();
  if (before > to.value()) {
    complain(fmt::format(
        "lowering the fence of '{}' from {} to {}: no stale write (G1) is no longer guaranteed for it",
        resource.name(), before, to.value()));
  }
  const auto view = wait_for<FenceView>([&](Done<FenceView> done) {
    fences->store().rebase({resource, to, by}, std::move(done));
  });
  if (!view.record) throw OutcomeUnknown("the fence has no record after it was set");
  fence_report(resource, *view.record).add("by", by).print(settings.is_on("json"));
  return exit_done;
}

std::vector<Setting> with_guard(std::vector<Setting> settings) {
  settings.insert(settings.begin(), {storage_setting, state_setting, server_setting});
  settings.insert(settings.end(),
                  {server_token_setting, server_token_file_setting, json_setting, config_setting});
  return settings;
}

std::vector<Command> stopped_guard_commands() {
  const Setting floor{.name = "floor",
                      .kind = Kind::number,
                      .placeholder = "NUMBER",
                      .help = "the floor, where there is no source to draw it from"};
  const Setting to{.name = "to", .kind = Kind::token, .placeholder = "NUMBER", .help = "the new token"};
  const Setting to_depth{.name = "to-depth",
                         .kind = Kind::number,
                         .placeholder = "N",
                         .help =
                             "serve with --resource-depth N from now on; no token seen so far is admitted "
                             "afterwards"};
  auto resource = resource_setting;
  resource.is_required = false;
  const Setting by{
      .name = "by", .placeholder = "NAME", .help = "who does it, for the record; left out, user@host"};
  return {
      {.name = "fence init",
       .synopsis = "--storage URL [--source URL | --floor NUMBER]",
       .summary = "create the guard's state, or raise its floor after a restore",
       .settings = {storage_setting, state_setting, fence_source_setting, floor, json_setting,
                    config_setting},
       .run = init,
       .notes =
           "It draws a number from --source or else the storage's own source: nothing that this source "
           "granted "
           "before is admitted afterwards. Name the source that the leases come from; one that was restored "
           "too "
           "is lifted above what it had granted first (fenceguard lease raise). A new sqlite: file is the "
           "exception, whose own source has granted nothing yet. In front of an http: storage the next guard "
           "with this state lets no write in before its settle time is over."},
      {.name = "fence rebase",
       .synopsis = "--storage URL  --resource RESOURCE --to NUMBER [--by NAME] | --to-depth N",
       .summary = "set a fence by hand, on a stopped guard, and record who did it",
       .settings = {storage_setting, state_setting, resource, to, by, to_depth, json_setting, config_setting},
       .run = rebase,
       .notes = "Lowering a fence forfeits the guarantee of no stale write (G1) for that resource."},
  };
}

std::vector<Command> changing_commands() {
  return {
      {.name = "fence advance",
       .synopsis = "--storage URL | --server URL  --resource RESOURCE --token NUMBER [--holder ID]",
       .summary = "make a token the resource's highest, so that lower ones are refused",
       .settings = with_guard({resource_setting, token_setting, holder_setting, signature_setting}),
       .run = advance},
      {.name = "fence revoke",
       .synopsis = "--storage URL [--source URL] | --server URL  --resource RESOURCE",
       .summary = "cut off the present holder; the next higher token opens the fence again",
       .settings = with_guard({fence_source_setting, resource_setting}),
       .run = revoke},
      {.name = "fence compact",
       .synopsis = "--storage URL [--source URL] | --server URL",
       .summary = "fold idle fences into the floor",
       .settings = with_guard({fence_source_setting}),
       .run = compact},
  };
}

}  // namespace

std::vector<Command> fence_commands() {
  std::vector<Command> all{
      {.name = "fence show",
       .synopsis = "--storage URL | --server URL  --resource RESOURCE",
       .summary = "show the highest token seen for a resource",
       .settings = with_guard({resource_setting}),
       .run = show},
      {.name = "fence list",
       .synopsis = "--storage URL | --server URL  [--prefix TEXT] [--after RESOURCE] [--limit COUNT]",
       .summary = "list fences in the order of their resources",
       .settings = with_guard({prefix_setting, after_setting, limit_setting}),
       .run = list},
  };
  for (auto&& command : changing_commands()) all.push_back(command);
  for (auto&& command : stopped_guard_commands()) all.push_back(command);
  return all;
}

}  // namespace fenceguard::cli
