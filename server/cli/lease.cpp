#include <fmt/format.h>

#include "guard/error.hpp"
#include "guard/source/counter_repair.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/source/lock_keys.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/exec/hold_lease.hpp"
#include "server/cli/exec/pgoptions.hpp"
#include "server/cli/target/open_target.hpp"
#include "server/cli/terminal/output.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {
namespace {

constexpr Setting holder_setting{.name = "holder",
                                 .kind = Kind::holder,
                                 .placeholder = "ID",
                                 .help = "who holds it; together with the token it is the claim"};
constexpr Setting new_holder_setting{.name = "holder",
                                     .kind = Kind::holder,
                                     .placeholder = "ID",
                                     .help =
                                         "who takes it; left out, a fresh random id. The same id again gets "
                                         "the same token"};
constexpr Setting token_setting{.name = "token",
                                .kind = Kind::token,
                                .placeholder = "NUMBER",
                                .help = "the fencing token, as granted",
                                .is_required = true};
constexpr Setting mark_setting{.name = "token",
                               .kind = Kind::token,
                               .placeholder = "NUMBER",
                               .help = "every token drawn from now on is higher than this",
                               .is_required = true};

constexpr Setting far_setting{
    .name = "far",
    .kind = Kind::flag,
    .help =
        "also by more than 2^40 above what the source drew, or what its owner set: such numbers are used up"};
constexpr Setting lowered_setting{.name = "source",
                                  .kind = Kind::url,
                                  .placeholder = "URL",
                                  .help = "the token source whose counter is meant",
                                  .is_required = true};
constexpr Setting to_setting{.name = "to",
                             .kind = Kind::token,
                             .placeholder = "NUMBER",
                             .help = "the next token is the one above this",
                             .is_required = true};
constexpr Setting by_setting{
    .name = "by", .placeholder = "NAME", .help = "who does it, for the record; left out, user@host"};

constexpr Setting key_setting{.name = "key",
                              .placeholder = "KEY",
                              .help = "the key in etcd, or the node in ZooKeeper, by which a lock is held"};
constexpr Setting told_setting{.name = "token",
                               .kind = Kind::token,
                               .placeholder = "NUMBER",
                               .help = "what is taken for the token: exit 1, and why, where it is another"};

Setting optional_resource() {
  auto resource = resource_setting;
  resource.is_required = false;
  resource.help = "the resource whose present holder is meant, whoever that is";
  return resource;
}

constexpr Setting print_setting{
    .name = "print",
    .placeholder = "pgoptions",
    .help = "print instead what PGOPTIONS is to hold, so that sessions of PostgreSQL have the claim"};

Claim claim_of(const Settings& settings) {
  return {settings.resource(), settings.token(), settings.holder(), std::nullopt};
}

Report claim_report(const Claim& claim) {
  Report report;
  report.add("resource", claim.resource.name()).add("token", claim.token).add("holder", claim.holder.id());
  return report;
}

int acquire(const Settings& settings) {
  require_one_way(settings);
  if (settings.is_given("print") && (settings.text("print") != "pgoptions" || settings.is_on("json"))) {
    throw InvalidInput("--print: only pgoptions can be printed, and not together with --json");
  }
  AcquireOptions options{.ttl = settings.duration("ttl"), .wait = settings.duration("wait")};
  require_sensible_ttl(options.ttl);
  if (settings.is_given("holder")) options.holder = settings.holder();
  const auto source = open_source(settings);
  const auto taken = take(settings, *source, options);
  if (!taken.grant) {
    const std::string why = taken.refusal ? to_string(*taken.refusal) : "held";
    if (settings.is_on("json"))
      Report{}.add("resource", settings.text("resource")).add("verdict", why).print(true);
    complain(taken.refusal ? fmt::format("the guard refused the claim as {}", why)
                           : "held by another holder");
    return exit_refused;
  }
  std::optional<EndingSignals> signals;
  if (source->lives_by_connection()) signals.emplace();
  auto report = claim_report(taken.grant->claim);
  if (settings.is_given("print")) {
    print_out(pgoptions(taken.grant->claim) + "\n");
    return signals ? stay(*signals, *source, *taken.grant) : exit_done;
  }
  if (!taken.signature.empty()) report.add("signature", taken.signature);
  if (settings.is_on("json")) {
    report.add_number("ttl_ms", taken.grant->ttl.count()).print(true);
  } else {
    report.add("ttl", fmt::format("{}ms", taken.grant->ttl.count())).print(false);
  }
  return signals ? stay(*signals, *source, *taken.grant) : exit_done;
}

// True if this very claim is the present lease.
bool is_held(TokenSource& source, const Claim& claim) {
  const auto record = source.show(claim.resource);
  return record && record->claim == claim;
}

int renew(const Settings& settings) {
  require_one_way(settings);
  const auto ttl = settings.duration("ttl");
  require_sensible_ttl(ttl);
  const auto source = open_source(settings);
  if (source->lives_by_connection() && is_held(*source, claim_of(settings))) {
    complain("held, and nothing to renew: it lives as long as the process that took it, whatever the time");
  } else if (source->lives_by_connection() || source->renew(claim_of(settings), ttl) == Renewal::lost) {
    complain("lost: the lease expired, was released, or belongs to another holder");
    return exit_refused;
  }
  if (settings.is_on("json")) claim_report(claim_of(settings)).add_number("ttl_ms", ttl.count()).print(true);
  return exit_done;
}

int release(const Settings& settings) {
  require_one_way(settings);
  const auto source = open_source(settings);
  if (source->lives_by_connection() && is_held(*source, claim_of(settings))) {
    complain(
        "still held: it lives as long as the process that took it; end that one (SIGTERM gives it back), or "
        "cut "
        "it off with 'fenceguard fence revoke'");
    return exit_refused;
  }
  if (source->lives_by_connection() || source->release(claim_of(settings)) == Release::not_held) {
    complain("not held: the lease expired, was released before, or belongs to another holder");
    return exit_refused;
  }
  if (settings.is_on("json")) claim_report(claim_of(settings)).add_flag("released", true).print(true);
  return exit_done;
}

Report lease_report(const LeaseRecord& record) {
  Report report;
  report.add("resource", record.claim.resource.name()).add("token", record.claim.token);
  if (record.remaining) report.add_number("remaining_ms", record.remaining->count());
  return report;
}

int show(const Settings& settings) {
  require_one_way(settings);
  const auto record = open_source(settings)->show(settings.resource());
  if (!record) {
    complain("not found: this resource has no lease");
    return exit_refused;
  }
  lease_report(*record).print(settings.is_on("json"));
  return exit_done;
}

int token(const Settings& settings) {
  require_one_way(settings);
  if (settings.is_given("key") == settings.is_given("resource")) {
    throw InvalidInput(
        "give --key, the key or node by which the lock is held, or --resource, whose present holder is "
        "meant");
  }
  const auto source = open_source(settings);
  std::optional<Token> found;
  if (settings.is_given("resource")) {
    if (const auto record = source->show(settings.resource())) found = record->claim.token;
  } else if (auto* keys = dynamic_cast<LockKeys*>(source.get())) {
    found = keys->token_of_key(settings.text("key"));
  } else {
    throw InvalidInput(
        "--key: other libraries take the locks of etcd: and zookeeper: sources alone; give --source");
  }
  if (!found) {
    complain(settings.is_given("key") ? "not held: this key does not have its lock, or is gone"
                                      : "not found: this resource has no lease");
    return exit_refused;
  }
  if (settings.is_given("token") && settings.token() != *found) {
    complain(
        fmt::format("{} is not the token of this holder, which is {}: it belongs to another grant, or only "
                    "looks like a token "
                    "(etcdctl's ETCD_LOCK_REV is the revision at which it saw that it had the lock; a lease "
                    "id and the number in "
                    "a node's name are none either)",
                    to_string(settings.token()), to_string(*found)));
    return exit_refused;
  }
  if (settings.is_on("json")) {
    Report{}.add("token", *found).print(true);
  } else {
    print_out(to_string(*found) + "\n");
  }
  return exit_done;
}

int list(const Settings& settings) {
  require_one_way(settings);
  const auto listing = listing_of(settings);
  const auto source = open_source(settings);
  auto* lister = dynamic_cast<LeaseLister*>(source.get());
  if (lister == nullptr) {
    throw Unavailable(
        "this token source cannot list its leases; ask for one by its name with 'fenceguard lease show'");
  }
  const auto page = lister->list_leases(listing);
  std::vector<ListedEntry> entries;
  for (const auto& record : page.entries) {
    const auto left = record.remaining ? fmt::format(" {}ms", record.remaining->count()) : " connection";
    entries.push_back({lease_report(record), left});
  }
  print_page("leases", entries, page.has_more, settings.is_on("json"));
  return exit_done;
}

std::string operator_of(const Settings& settings) {
  return settings.is_given("by") ? settings.text("by") : user_at_host();
}

// Before a source is asked that has no bound of its own. Where no number is to be had (a counter that was
// lost, a node that does not vote yet, one counter for each resource) the raise is what repairs it.
void require_near(TokenSource& source, Token mark) {
  std::optional<Token> drawn;
  try {
    drawn = source.draw();
  } catch (const Error& error) {
    if (error.kind() == FaultKind::unknown) throw;
    return;
  }
  if (mark > *drawn && mark.value() - drawn->value() > TokenSource::raise_max)
    throw Implausible(
        fmt::format("the source stands at {}, and {} is more than {} above it: if a client made it up, set "
                    "the fence back "
                    "('fenceguard fence rebase'); if it is right, add --far",
                    drawn->value(), mark.value(), TokenSource::raise_max));
}

int raise(const Settings& settings) {
  require_one_way(settings);
  const auto mark = settings.token();
  const bool is_far = settings.is_on("far");
  const bool is_remote = settings.is_given("server");
  if (is_far && is_remote)
    throw InvalidInput("--far is for --source: a guard that runs lifts its source within its bound");
  const auto source = open_source(settings);
  auto* repair = dynamic_cast<CounterRepair*>(source.get());
  if (repair == nullptr && !is_far && !is_remote) require_near(*source, mark);
  if (repair != nullptr && is_far)
    repair->raise_far(mark, operator_of(settings));
  else
    source->raise(settings.resource(), mark);
  if (settings.is_on("json")) {
    Report{}.add("resource", settings.text("resource")).add("token", settings.token()).print(true);
  }
  return exit_done;
}

int lower(const Settings& settings) {
  const auto to = settings.token("to");
  const auto by = operator_of(settings);
  const auto url = settings.url("source").value();
  products().require_present(url);
  const auto source = products().open_source(url);
  auto* repair = dynamic_cast<CounterRepair*>(source.get());
  if (repair == nullptr) throw Unavailable("this token source has no counter that can be lowered");
  complain(
      fmt::format("lowering the counter to {}: numbers above it are granted again, so that no stale write "
                  "(G1) is no longer "
                  "guaranteed where one of them was granted or seen (stop its holders first), and fences "
                  "above it refuse the new ones: set those "
                  "back with 'fenceguard "
                  "fence rebase'",
                  to.value()));
  const auto before = repair->lower(to, by);
  Report{}.add("from", before).add("to", to).add("by", by).print(settings.is_on("json"));
  return exit_done;
}

std::vector<Setting> with_way(std::vector<Setting> settings) {
  settings.insert(settings.begin(), {source_setting, server_setting});
  settings.insert(settings.end(),
                  {server_token_setting, server_token_file_setting, json_setting, config_setting});
  return settings;
}

// Where no guard is advanced, the storage only stands for its own source.
constexpr Setting source_of_setting{.name = "storage",
                                    .kind = Kind::url,
                                    .placeholder = "URL",
                                    .help = "the storage whose own token source is meant, without --source"};

}  // namespace

std::vector<Command> lease_commands() {
  return {
      {.name = "lease acquire",
       .synopsis = "--source URL [--storage URL] | --server URL  --resource RESOURCE [OPTION…]",
       .summary = "take the lock and print its token; it stays held for its time to live",
       .settings = with_way({storage_setting, resource_setting, ttl_setting, wait_setting, init_setting,
                             new_holder_setting, claim_key_setting, claim_space_setting, print_setting}),
       .run = acquire,
       .notes =
           "With --server or --storage the guard has been advanced before the token is printed. Where a "
           "lease lives by a connection (postgres: with lock=row or lock=advisory) it stays until SIGTERM or "
           "SIGINT and then gives the lock back; exit 1 if the lease was lost before."},
      {.name = "lease renew",
       .synopsis = "--source URL | --server URL  --resource RESOURCE --token NUMBER --holder ID [--ttl TIME]",
       .summary = "extend a lease that is held",
       .settings = with_way({source_of_setting, resource_setting, token_setting, holder_setting,
                             signature_setting, ttl_setting}),
       .run = renew},
      {.name = "lease release",
       .synopsis = "--source URL | --server URL  --resource RESOURCE --token NUMBER --holder ID",
       .summary = "give the lock back",
       .settings =
           with_way({source_of_setting, resource_setting, token_setting, holder_setting, signature_setting}),
       .run = release},
      {.name = "lease show",
       .synopsis = "--source URL | --server URL  --resource RESOURCE",
       .summary = "show the present lease of a resource",
       .settings = with_way({source_of_setting, resource_setting}),
       .run = show},
      {.name = "lease token",
       .synopsis = "--source URL  --key KEY | --resource RESOURCE  [--token NUMBER]",
       .summary = "print the token of a lock that another library holds, offset included",
       .settings = with_way({source_of_setting, key_setting, optional_resource(), told_setting}),
       .run = token,
       .notes = "--key is what the lock is held by: ETCD_LOCK_KEY of 'etcdctl lock', lock.path + '/' + "
                "lock.node of "
                "kazoo. The exit status is 1 where that key does not hold its lock. A token that was read by "
                "--resource may be that of the next holder already: read it once after each acquire, and "
                "keep it."},
      {.name = "lease list",
       .synopsis = "--source URL | --server URL  [--prefix TEXT] [--after RESOURCE] [--limit COUNT]",
       .summary = "list the live leases in the order of their resources",
       .settings = with_way({source_of_setting, prefix_setting, after_setting, limit_setting}),
       .run = list,
       .notes = "Each line is a resource, its token and what is left of the lease, or 'connection' where it "
                "lives by one. A source that cannot say which leases there are is told, with exit 3."},
      {.name = "lease raise",
       .synopsis = "--source URL | --server URL  --resource RESOURCE --token NUMBER",
       .summary = "lift a source that has fallen behind its guard",
       .settings = with_way({source_of_setting, resource_setting, mark_setting, far_setting, by_setting}),
       .run = raise},
      {.name = "lease lower",
       .synopsis = "--source URL  --to NUMBER [--by NAME]",
       .summary = "set a source's counter back by hand, and record who did it",
       .settings = {lowered_setting, to_setting, by_setting, json_setting, config_setting},
       .run = lower,
       .notes = "For redis:, postgres: and mariadb: sources, where a number that was made up has used up "
                "nearly all "
                "there are. It forfeits the guarantee of no stale write (G1) wherever a number above the new "
                "one was "
                "granted or seen: stop its holders first. Leases above it end in postgres: and mariadb:; in "
                "redis: "
                "they stay until they are released."},
  };
}

}  // namespace fenceguard::cli
