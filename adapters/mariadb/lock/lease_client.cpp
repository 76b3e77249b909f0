#include "adapters/mariadb/lock/lease_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "adapters/mariadb/fences/rulings.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::mariadb {
namespace {

using Ms = std::chrono::milliseconds;

// Milliseconds that are left; null where it lives by a session.
constexpr std::string_view remaining =
    "IF(l.keeper IS NULL, CEIL(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), l.expires_at) / 1000), NULL)";

// In a statement about leases l of the schema: those that are live.
std::string is_live(const std::string& schema) {
  return fmt::format(
      "l.expires_at > UTC_TIMESTAMP(6) AND {}.is_live(l.resource, l.token, l.expires_at, l.keeper, "
      "UTC_TIMESTAMP(6))",
      schema);
}

std::optional<Ms> left_in(const Rows& rows, std::size_t column) {
  if (!rows.at(0).at(column)) return std::nullopt;
  return Ms{number_in(rows, column)};
}

}  // namespace

std::variant<Grant, LockBusy> grant_of(const Rows& rows, const Resource& resource, const Holder& holder,
                                       Ms ttl) {
  // At least a moment, so that no caller asks again and again while the last of a term passes.
  if (text_in(rows, 0) != "granted") return LockBusy{std::max(Ms{1}, Ms{number_in(rows, 3)})};
  return Grant{{resource, Token{number_in(rows, 1)}, holder, std::nullopt}, ttl, number_in(rows, 2) != 0, {}};
}

LeaseClient::LeaseClient(const Address& address) : pool_{address}, schema_{quoted_name(address.schema)} {}

std::variant<Grant, LockBusy> LeaseClient::acquire(const Resource& resource, const Holder& holder, Ms ttl) {
  const auto rows = pool_.call(Stage::at_commit, "acquiring " + resource.name(), "acquire",
                               {resource.name(), std::to_string(ttl.count()), holder.id()});
  return grant_of(rows, resource, holder, ttl);
}

Renewal LeaseClient::renew(const Claim& claim, Ms ttl) {
  auto arguments = arguments_of(claim);
  arguments.push_back(std::to_string(ttl.count()));
  const auto rows = pool_.call_renewal("renewing " + claim.resource.name(), "renew", arguments);
  return number_in(rows, 0) != 0 ? Renewal::renewed : Renewal::lost;
}

Release LeaseClient::release(const Claim& claim) {
  const auto rows = pool_.call(Stage::at_commit, "releasing " + claim.resource.name(), "release_lease",
                               arguments_of(claim));
  return number_in(rows, 0) != 0 ? Release::released : Release::not_held;
}

Release LeaseClient::end(const Resource& resource) {
  const auto doing = "ending the lease of " + resource.name();
  const auto rows = pool_.call(Stage::at_commit, doing, "end_lease", {resource.name()});
  if (number_in(rows, 0) == 0) return Release::not_held;
  if (!rows[0][1]) return Release::released;
  const auto keeper = number_in(rows, 1);
  const auto holds = [&] {
    const auto found =
        pool_.look(doing,
                   fmt::format("SELECT {}.is_live(CAST(? AS BINARY), 1, '9999-12-31', {}, '1970-01-01')",
                               schema_, keeper),
                   {resource.name()});
    return number_in(found, 0) != 0;
  };
  // No other session gets that number while this one lives.
  if (holds()) (void)pool_.look(doing, fmt::format("KILL CONNECTION {}", keeper), {});
  const auto deadline = BootClock::now() + end_wait;
  while (holds() && BootClock::now() < deadline) std::this_thread::sleep_for(Ms{10});
  return Release::released;
}

std::optional<LeaseRecord> LeaseClient::show(const Resource& resource) {
  const auto rows = pool_.look(
      "looking for the lease of " + resource.name(),
      fmt::format("SELECT l.token, l.holder, {} FROM {}.leases l WHERE l.resource = CAST(? AS BINARY) AND {}",
                  remaining, schema_, is_live(schema_)),
      {resource.name()});
  if (rows.empty()) return std::nullopt;
  return LeaseRecord{{resource, Token{number_in(rows, 0)}, Holder{rows[0][1].value_or("")}, std::nullopt},
                     left_in(rows, 2)};
}

LeasePage LeaseClient::list(const FenceListing& listing) {
  const auto rows = pool_.look(
      "listing leases",
      fmt::format(
          "SELECT {}, l.token, l.resource FROM {}.leases l WHERE l.resource > CAST(? AS BINARY) AND "
          "l.resource >= CAST(? AS BINARY) AND LEFT(l.resource, {}) = CAST(? AS BINARY) AND {} ORDER BY "
          "l.resource LIMIT {}",
          remaining, schema_, listing.prefix.size(), is_live(schema_), listing.limit + 1),
      {listing.after, listing.prefix, listing.prefix});
  LeasePage page;
  for (const auto& row : rows) {
    const Rows one{row};
    LeaseRecord lease{{Resource{text_in(one, 2)}, Token{number_in(one, 1)}, {}, std::nullopt},
                      left_in(one, 0)};
    if (!page.take(std::move(lease), listing)) break;
  }
  return page;
}

void LeaseClient::raise(const Resource& resource, Token mark) {
  (void)pool_.call(Stage::at_commit, "raising the counter for " + resource.name(), "raise_counter",
                   {to_string(mark)});
}

void LeaseClient::raise_far(Token mark, const std::string& done_by) {
  (void)pool_.call(Stage::at_commit, "raising the counter", "raise_counter_far", {to_string(mark), done_by});
}

Token LeaseClient::lower(Token mark, const std::string& done_by) {
  return Token{number_in(
      pool_.call(Stage::at_commit, "lowering the counter", "lower_counter", {to_string(mark), done_by}), 0)};
}

Token LeaseClient::draw() {
  return Token{number_in(pool_.call(Stage::at_commit, "drawing a number", "draw", {}), 0)};
}

Token LeaseClient::lowest_live() {
  const auto rows = pool_.call(Stage::before_commit, "looking for the lowest token", "lowest_live", {});
  return Token{number_in(rows, 0)};
}

}  // namespace fenceguard::mariadb
