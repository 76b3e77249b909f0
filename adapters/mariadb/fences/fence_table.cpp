#include "adapters/mariadb/fences/fence_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "adapters/mariadb/errors.hpp"
#include "adapters/mariadb/fences/advance.hpp"
#include "adapters/mariadb/fences/rulings.hpp"
#include "guard/error.hpp"

namespace fenceguard::mariadb {
namespace {

// So many fences are counted; of more, the engine's estimate is told.
constexpr std::int64_t counted_max = 1000;

// The procedures that set a fence by hand wait so long by themselves.
constexpr std::chrono::seconds own_wait{5};

std::string table(const Connection& connection, std::string_view name) {
  return fmt::format("{}.{}", quoted_name(connection.schema()), name);
}

// token, holder, sequence, closed from column first on.
std::optional<Fence> fence_of(const Row& row, std::size_t first) {
  if (!row[first]) return std::nullopt;
  const auto token = Token::parse(*row[first]);
  if (!token) throw std::runtime_error("a fence has a token that is none");
  Fence fence{*token, Holder{row[first + 1].value_or("")}, {}, row[first + 3] != "0", row[first + 3] == "2"};
  if (row[first + 2]) fence.sequence = Sequence::parse(*row[first + 2]);
  return fence;
}

}  // namespace

FenceView view_of(Connection& connection, const Resource& resource) {
  const auto rows = connection.run(
      fmt::format(
          "SELECT n.floor_token, f.token, f.holder, f.sequence, f.closed FROM (SELECT 1) one LEFT JOIN {} "
          "n ON TRUE LEFT JOIN {} f ON f.resource = CAST(? AS BINARY)",
          table(connection, "namespace"), table(connection, "fences")),
      {resource.name()});
  const auto& row = rows.at(0);
  return {fence_of(row, 1), row[0] ? number_in(rows, 0) : 0};
}

FencePage list_fences(Connection& connection, const FenceListing& listing) {
  const auto rows = connection.run(
      fmt::format(
          "SELECT f.resource, f.token, f.holder, f.sequence, f.closed FROM {} f WHERE f.resource > CAST(? AS "
          "BINARY) AND f.resource >= CAST(? AS BINARY) AND LEFT(f.resource, {}) = CAST(? AS BINARY) ORDER "
          "BY f.resource LIMIT {}",
          table(connection, "fences"), listing.prefix.size(), listing.limit + 1),
      {listing.after, listing.prefix, listing.prefix});
  FencePage page;
  page.has_more = rows.size() > listing.limit;
  for (const auto& row : rows) {
    if (page.entries.size() == listing.limit) break;
    page.entries.push_back({Resource{row[0].value_or("")}, fence_of(row, 1).value()});
  }
  return page;
}

FenceView revoke(Connection& connection, const Resource& resource, const std::optional<Claim>& lease) {
  Row arguments{resource.name(), std::nullopt, std::nullopt};
  if (lease) arguments = arguments_of({resource, lease->token, lease->holder, std::nullopt});
  call_cutting(connection, std::nullopt, own_wait,
               [&](auto) { return connection.call("revoke_fence", arguments); });
  return view_of(connection, resource);
}

FenceView rebase(Connection& connection, const FenceStore::Rebase& rebase) {
  const Row arguments{rebase.resource.name(), to_string(rebase.to), rebase.by};
  call_cutting(connection, std::nullopt, own_wait,
               [&](auto) { return connection.call("rebase", arguments); });
  return view_of(connection, rebase.resource);
}

std::int64_t init(Connection& connection, std::int64_t floor) {
  const auto init = [&](auto) { return connection.call("init", {std::to_string(floor)}); };
  return number_in(call_cutting(connection, std::nullopt, own_wait, init), 0);
}

Compaction compact(Connection& connection, Token lowest_live) {
  const auto rows = connection.call("compact", {to_string(lowest_live)});
  return {number_in(rows, 0), number_in(rows, 1)};
}

StoreStatus status_of(Connection& connection) {
  Rows rows;
  try {
    rows =
        connection.run(fmt::format("SELECT COALESCE(MAX(n.floor_token), -1), (SELECT COALESCE(MAX(f.token), "
                                   "0) FROM {0} f), (SELECT COUNT(*) "
                                   "FROM (SELECT 1 FROM {0} LIMIT {1}) few), @@global.read_only FROM {2} n",
                                   table(connection, "fences"), counted_max, table(connection, "namespace")));
  } catch (const ServerError& error) {
    if (!is_not_installed(error)) throw;
    return {StoreState::uninitialised,
            "the fences are not installed: run 'fenceguard sql mariadb | mariadb', once per server", 0, 0, 0};
  }
  const auto floor = rows.at(0).at(0).value_or("-1");
  StoreStatus status;
  status.floor = floor == "-1" ? 0 : number_in(rows, 0);
  status.highest = std::max(status.floor, number_in(rows, 1));
  status.resources = number_in(rows, 2);
  if (status.resources == counted_max) {
    const auto estimate = connection.run(
        "SELECT COALESCE(MAX(t.table_rows), 0) FROM information_schema.tables t WHERE t.table_schema = ? AND "
        "t.table_name = 'fences'",
        {connection.schema()});
    status.resources = std::max(counted_max, number_in(estimate, 0));
  }
  if (floor == "-1") {
    status.state = StoreState::uninitialised;
    status.reason = "namespace not initialised (no floor): claims are refused; run 'fenceguard fence init'";
  } else if (rows.at(0).at(3) != "0" && rows.at(0).at(3) != "OFF") {
    status.state = StoreState::failed;
    status.reason = "this server is read_only: go to the primary";
  }
  return status;
}

}  // namespace fenceguard::mariadb
