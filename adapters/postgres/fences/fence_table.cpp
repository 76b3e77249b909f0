#include "adapters/postgres/fences/fence_table.hpp"

#include <fmt/format.h>

#include "adapters/postgres/fences/schema.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::postgres {
namespace {

// So many fences are counted; of more, the planner's estimate is told.
constexpr std::int64_t counted_max = 1000;

// Sorts after every resource that begins with the same prefix: the highest code point, oftener than a
// resource has room for.
constexpr const char* beyond = "repeat(chr(1114111), 129)";

// token, holder, sequence, closed from column first on.
std::optional<Fence> fence_of(const pqxx::row& row, pqxx::row::size_type first) {
  if (row[first].is_null()) return std::nullopt;
  Fence fence{Token{row[first].as<std::int64_t>()}, Holder{row[first + 1].as<std::string>()}, {}, false};
  if (!row[first + 2].is_null()) fence.sequence = Sequence{row[first + 2].as<std::int64_t>()};
  fence.closed = row[first + 3].as<bool>();
  return fence;
}

}  // namespace

Ruling rule_in(pqxx::transaction_base& tx, const Claim& claim, std::int64_t jump_max) {
  // What was seen before is looked up with the statement's own snapshot, which is older than the ruling.
  const auto bound = jump_bound(claim, jump_max);
  const auto row = exec_params(tx,
                               "SELECT r.verdict, r.highest, fenceguard.highest_seen($1),"
                               " pg_catalog.current_setting('fenceguard.overtaken', true)"
                               " FROM fenceguard.rule($1, $2, $3, NULL, NULL, NULL, $4) r",
                               claim.resource.name(), claim.token.value(), claim.holder.id(), bound)[0];
  const auto word = row[0].as<std::string>();
  const auto verdict = parse_verdict(word);
  if (!verdict) throw std::runtime_error("fenceguard.rule() answered '" + word + "'");
  Ruling ruling{*verdict, row[1].is_null() ? 0 : row[1].as<std::int64_t>(), std::nullopt, false};
  if (ruling.verdict == Verdict::admitted) {
    ruling.changed = row[2].is_null() || row[2].as<std::int64_t>() < claim.token.value();
    ruling.fence = Fence{claim.token, claim.holder, std::nullopt, false};
    const auto told = row[3].is_null() ? std::nullopt : std::optional{row[3].as<std::string>()};
    if (ruling.changed) ruling.overtaken = parse_overtaken(told, claim);
  } else if (ruling.verdict == Verdict::stale && ruling.highest == claim.token.value()) {
    // Closed, or below the floor: the record tells, to a role that may see it.
    const auto may_see = tx.exec("SELECT pg_catalog.has_table_privilege('fenceguard.fences', 'SELECT')");
    if (may_see[0][0].as<bool>()) ruling.fence = view_in(tx, claim.resource).record;
  }
  return ruling;
}

FenceView view_in(pqxx::transaction_base& tx, const Resource& resource) {
  const auto row =
      exec_params(tx,
                  "SELECT o.floor, f.token, f.holder, f.sequence, f.closed FROM (SELECT) one"
                  " LEFT JOIN fenceguard.floor o ON true LEFT JOIN fenceguard.fences f ON f.resource = $1",
                  resource.name())[0];
  return {fence_of(row, 1), row[0].is_null() ? 0 : row[0].as<std::int64_t>()};
}

FencePage list_in(pqxx::transaction_base& tx, const FenceListing& listing) {
  if (listing.prefix.find('\0') != std::string::npos || listing.after.find('\0') != std::string::npos) {
    throw InvalidInput("a resource's name has no NUL in it");
  }
  // The column's collation is "C": bytewise. starts_with() and not LIKE, which has wildcards.
  const auto rows = exec_params(
      tx,
      fmt::format("SELECT f.resource, f.token, f.holder, f.sequence, f.closed FROM fenceguard.fences f"
                  " WHERE f.resource > $2 AND f.resource >= $1 AND f.resource <= $1 || {}"
                  " AND starts_with(f.resource, $1) ORDER BY f.resource LIMIT $3",
                  beyond),
      listing.prefix, listing.after, static_cast<std::int64_t>(listing.limit) + 1);
  FencePage page;
  page.has_more = static_cast<std::size_t>(rows.size()) > listing.limit;
  for (const auto& row : rows) {
    if (page.entries.size() == listing.limit) break;
    page.entries.push_back({Resource{row[0].as<std::string>()}, fence_of(row, 1).value()});
  }
  return page;
}

FenceView revoke_in(pqxx::transaction_base& tx, const Resource& resource, const std::optional<Claim>& lease) {
  if (lease) {
    exec_params(tx, "SELECT fenceguard.revoke_present($1, $2, $3)", resource.name(), lease->token.value(),
                lease->holder.id());
  } else {
    exec_params(tx, "SELECT fenceguard.revoke($1)", resource.name());
  }
  return view_in(tx, resource);
}

Compaction compact_in(pqxx::transaction_base& tx, Token lowest_live) {
  const auto row =
      exec_params(tx, "SELECT c.dropped, c.floor FROM fenceguard.compact($1) c", lowest_live.value())[0];
  return {row[0].as<std::int64_t>(), row[1].as<std::int64_t>()};
}

std::int64_t init_in(pqxx::transaction_base& tx, std::int64_t floor) {
  return exec_params(tx, "SELECT fenceguard.init($1)", floor)[0][0].as<std::int64_t>();
}

FenceView rebase_in(pqxx::transaction_base& tx, const FenceStore::Rebase& rebase) {
  exec_params(tx, "SELECT fenceguard.rebase($1, $2, $3)", rebase.resource.name(), rebase.to.value(),
              rebase.by);
  return view_in(tx, rebase.resource);
}

namespace {

std::vector<RefusalCount> refusals_in(pqxx::transaction_base& tx) {
  std::vector<RefusalCount> refusals;
  for (const auto& row :
       tx.exec("SELECT coalesce(r.relation::text, ''), r.verdict, r.refusals FROM fenceguard.refusals r")) {
    refusals.push_back({row[0].as<std::string>(), row[1].as<std::string>(), row[2].as<std::int64_t>()});
  }
  return refusals;
}

}  // namespace

StoreStatus status_in(pqxx::transaction_base& tx) {
  try {
    require_installed(tx);
  } catch (const Unavailable& error) {
    return {StoreState::uninitialised, error.what(), 0, 0, 0};
  }
  const auto row = exec_params(
      tx,
      "SELECT o.floor, (SELECT max(f.token) FROM fenceguard.fences f),"
      " (SELECT count(*) FROM (SELECT FROM fenceguard.fences LIMIT $1) few),"
      " (SELECT c.reltuples::bigint FROM pg_catalog.pg_class c WHERE c.oid = 'fenceguard.fences'::regclass),"
      " pg_catalog.pg_is_in_recovery(), pg_catalog.has_table_privilege('fenceguard.refusals', 'select') FROM "
      "(SELECT) one LEFT JOIN fenceguard.floor o ON true",
      counted_max)[0];
  StoreStatus status;
  status.floor = row[0].is_null() ? 0 : row[0].as<std::int64_t>();
  status.highest = std::max(status.floor, row[1].is_null() ? 0 : row[1].as<std::int64_t>());
  status.resources = row[2].as<std::int64_t>();
  if (status.resources == counted_max) status.resources = std::max(counted_max, row[3].as<std::int64_t>());
  if (row[0].is_null()) {
    status.state = StoreState::uninitialised;
    status.reason =
        "namespace not initialised (no floor): claims are refused; restore the table fenceguard.floor, or "
        "run "
        "'fenceguard fence init'";
  } else if (row[4].as<bool>()) {
    status.state = StoreState::failed;
    status.reason = "this server is a standby: go to the primary";
  }
  if (row[5].as<bool>()) status.refusals = refusals_in(tx);
  return status;
}

}  // namespace fenceguard::postgres
