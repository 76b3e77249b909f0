#include "adapters/postgres/lock/lease_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace fenceguard::postgres {
namespace {

constexpr auto always = [](const pqxx::result&) { return true; };
constexpr auto never = [](const pqxx::result&) { return false; };
constexpr auto if_granted = [](const pqxx::result& rows) {
  return rows[0][0].as<std::string>() == "granted";
};
constexpr auto if_true = [](const pqxx::result& rows) { return rows[0][0].as<bool>(); };

// Milliseconds of an interval, rounded up.
std::string ms_of(std::string_view interval) {
  return fmt::format("ceil(extract(epoch from {}) * 1000)::bigint", interval);
}

std::string interval(std::chrono::milliseconds duration) {
  return fmt::format("{} * interval '1 ms'", duration.count());
}

std::string claim_arguments(pqxx::connection& connection, const Claim& claim) {
  return fmt::format("{}, {}, {}", connection.quote(claim.resource.name()), claim.token.value(),
                     connection.quote(claim.holder.id()));
}

// At least a moment, so that no caller asks again and again while the last of a term passes.
LockBusy held_for(const pqxx::field& ms) {
  return LockBusy{std::max(std::chrono::milliseconds{1}, std::chrono::milliseconds{ms.as<std::int64_t>()})};
}

Token token_in(const pqxx::field& field) {
  return Token{field.as<std::int64_t>()};
}

std::optional<std::chrono::milliseconds> left_in(const pqxx::field& field) {
  if (field.is_null()) return std::nullopt;
  return std::chrono::milliseconds{field.as<std::int64_t>()};
}

}  // namespace

std::variant<Grant, LockBusy> LeaseClient::acquire(const Resource& resource, const Holder& holder, Ms ttl) {
  const auto rows = pool_.call(
      "acquiring " + resource.name(),
      [&](pqxx::connection& connection) {
        return fmt::format("SELECT verdict, token, is_new, {} FROM fenceguard.acquire({}, {}, {})",
                           ms_of("retry_after"), connection.quote(resource.name()), interval(ttl),
                           connection.quote(holder.id()));
      },
      if_granted);
  if (!if_granted(rows)) return held_for(rows[0][3]);
  return Grant{{resource, token_in(rows[0][1]), holder, std::nullopt}, ttl, rows[0][2].as<bool>(), {}};
}

std::variant<Token, LockBusy> LeaseClient::acquire_kept(const Resource& resource, const Holder& holder,
                                                        const std::string& kept_by, int keeper_pid) {
  const auto rows = pool_.call(
      "acquiring " + resource.name(),
      [&](pqxx::connection& connection) {
        return fmt::format("SELECT verdict, token, {} FROM fenceguard.acquire_kept({}, {}, {}, {})",
                           ms_of("retry_after"), connection.quote(resource.name()),
                           connection.quote(holder.id()), connection.quote(kept_by), keeper_pid);
      },
      if_granted);
  if (!if_granted(rows)) return held_for(rows[0][2]);
  return token_in(rows[0][1]);
}

void LeaseClient::prepare_row(const Resource& resource) {
  pool_.call(
      "acquiring " + resource.name(),
      [&](pqxx::connection& connection) {
        return fmt::format("SELECT fenceguard.prepare_row({})", connection.quote(resource.name()));
      },
      always);
}

Renewal LeaseClient::renew(const Claim& claim, Ms ttl) {
  const auto rows = pool_.call_renewal(
      "renewing " + claim.resource.name(),
      [&](pqxx::connection& connection) {
        return fmt::format("SELECT fenceguard.renew({}, {})", claim_arguments(connection, claim),
                           interval(ttl));
      },
      if_true, ttl / 8);
  return if_true(rows) ? Renewal::renewed : Renewal::lost;
}

Release LeaseClient::release(const Claim& claim) {
  const auto rows = pool_.call(
      "releasing " + claim.resource.name(),
      [&](pqxx::connection& connection) {
        return fmt::format("SELECT fenceguard.release({})", claim_arguments(connection, claim));
      },
      if_true);
  return if_true(rows) ? Release::released : Release::not_held;
}

Release LeaseClient::end(const Resource& resource) {
  const auto rows = pool_.call(
      "ending the lease of " + resource.name(),
      [&](pqxx::connection& connection) {
        return fmt::format(
            "SELECT fenceguard.end_lease({0}), "
            "(SELECT l.keeper_pid FROM fenceguard.lease l WHERE l.resource = {0})",
            connection.quote(resource.name()));
      },
      if_true);
  if (!if_true(rows)) return Release::not_held;
  if (!rows[0][1].is_null()) wait_until_gone(rows[0][1].as<int>());
  return Release::released;
}

// A backend that was told to end frees its locks a moment later.
void LeaseClient::wait_until_gone(int pid) {
  const auto deadline = BootClock::now() + end_wait;
  const auto statement = [pid](pqxx::connection&) {
    return fmt::format("SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity({}))", pid);
  };
  while (if_true(pool_.call("ending a lease", statement, never)) && BootClock::now() < deadline) {
    std::this_thread::sleep_for(Ms{10});
  }
}

std::optional<LeaseRecord> LeaseClient::show(const Resource& resource) {
  const auto rows = pool_.call(
      "looking for the lease of " + resource.name(),
      [&](pqxx::connection& connection) {
        // What is kept by a connection has no end, and PostgreSQL before 17 cannot subtract from infinity.
        return fmt::format(
            "SELECT token, holder, CASE kept_by WHEN 'ttl' THEN {} END "
            "FROM fenceguard.lease WHERE resource = {}",
            ms_of("remaining"), connection.quote(resource.name()));
      },
      never);
  if (rows.empty()) return std::nullopt;
  return LeaseRecord{{resource, token_in(rows[0][0]), Holder{rows[0][1].as<std::string>()}, std::nullopt},
                     left_in(rows[0][2])};
}

LeasePage LeaseClient::list(const FenceListing& listing) {
  const auto rows = pool_.call(
      "listing leases",
      [&](pqxx::connection& connection) {
        return fmt::format(
            "SELECT resource, token, CASE kept_by WHEN 'ttl' THEN {} END FROM fenceguard.lease "
            "WHERE resource > {} AND pg_catalog.starts_with(resource, {}) ORDER BY resource LIMIT {}",
            ms_of("remaining"), connection.quote(listing.after), connection.quote(listing.prefix),
            listing.limit + 1);
      },
      never);
  LeasePage page;
  for (const auto& row : rows) {
    page.has_more = page.entries.size() == listing.limit;
    if (page.has_more) break;
    page.entries.push_back(
        {{Resource{row[0].as<std::string>()}, token_in(row[1]), {}, std::nullopt}, left_in(row[2])});
  }
  return page;
}

void LeaseClient::raise(Token mark) {
  pool_.call(
      "raising the counter",
      [mark](pqxx::connection&) { return fmt::format("SELECT fenceguard.raise({})", mark.value()); }, always);
}

void LeaseClient::raise_far(Token mark, const std::string& done_by) {
  const auto statement = [&](pqxx::connection& connection) {
    return fmt::format("SELECT fenceguard.raise_far({}, {})", mark.value(), connection.quote(done_by));
  };
  pool_.call("raising the counter", statement, always);
}

Token LeaseClient::lower(Token mark, const std::string& done_by) {
  const auto statement = [&](pqxx::connection& connection) {
    return fmt::format("SELECT fenceguard.lower_counter({}, {})", mark.value(), connection.quote(done_by));
  };
  return token_in(pool_.call("lowering the counter", statement, always)[0][0]);
}

Token LeaseClient::draw() {
  const auto statement = [](pqxx::connection&) { return "SELECT fenceguard.draw()"; };
  return token_in(pool_.call("drawing a number", statement, always)[0][0]);
}

Token LeaseClient::lowest_live() {
  const auto statement = [](pqxx::connection&) { return "SELECT fenceguard.lowest_live()"; };
  return token_in(pool_.call("looking for the lowest token", statement, never)[0][0]);
}

}  // namespace fenceguard::postgres
