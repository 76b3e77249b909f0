// The doctor's checks of the fences, of the roles that may touch them, and of the tables that they protect.

#include <fmt/format.h>

#include "server/doctor/postgres_checks.hpp"

namespace fenceguard::postgres {
namespace {

using Level = Finding::Level;

// A role that writes these tables itself decides what is stale.
Findings look_at_rights(pqxx::transaction_base& tx, const std::string& name) {
  const auto rows = tx.exec(
      "SELECT c.relname, CASE WHEN a.grantee = 0 THEN 'everybody' ELSE pg_get_userbyid(a.grantee)::text END,"
      " string_agg(a.privilege_type, ', ' ORDER BY a.privilege_type)"
      " FROM pg_catalog.pg_class c, LATERAL pg_catalog.aclexplode(c.relacl) a"
      " WHERE c.relnamespace = 'fenceguard'::regnamespace AND a.grantee <> c.relowner"
      " AND a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')"
      " GROUP BY 1, 2 ORDER BY 1, 2");
  Findings findings;
  for (const auto& row : rows) {
    findings.push_back(
        {Level::danger, name,
         fmt::format("{} may write fenceguard.{} without any claim ({}): revoke it", row[1].as<std::string>(),
                     row[0].as<std::string>(), row[2].as<std::string>())});
  }
  const auto own = tx.exec(
      "SELECT pg_get_userbyid(c.relowner), pg_has_role(current_user, c.relowner, 'usage') AND NOT r.rolsuper"
      " FROM pg_catalog.pg_class c, pg_catalog.pg_roles r"
      " WHERE c.oid = 'fenceguard.fences'::regclass AND r.rolname = current_user")[0];
  if (own[1].as<bool>()) {
    findings.push_back(
        {Level::warning, name,
         fmt::format("this role owns the fences (as {}) and may write them: applications need a role "
                     "that does not",
                     own[0].as<std::string>())});
  }
  if (findings.empty()) findings.push_back({Level::ok, name, "only the owner may write fences"});
  return findings;
}

Findings look_at_cutting(pqxx::transaction_base& tx, const std::string& name) {
  const auto row = tx.exec(
      "SELECT o.rolname, o.rolsuper, pg_has_role(o.oid, 'pg_signal_backend', 'usage') FROM "
      "pg_catalog.pg_class c"
      " JOIN pg_catalog.pg_roles o ON o.oid = c.relowner WHERE c.oid = 'fenceguard.fences'::regclass")[0];
  const auto owner = row[0].as<std::string>();
  if (row[1].as<bool>()) return {{Level::ok, name, fmt::format("{} may end stopped clients", owner)}};
  if (row[2].as<bool>())
    return {{Level::ok, name, fmt::format("{} may end stopped clients, but no superuser's", owner)}};
  return {
      {Level::warning, name,
       fmt::format(
           "{}, the fences' owner, may not end backends of other roles: a client that was stopped inside its "
           "transaction keeps the next holder out. As a superuser: GRANT pg_signal_backend TO {}",
           owner, owner)}};
}

Findings look_at_fences(pqxx::transaction_base& tx, const std::string& name) {
  const auto row = tx.exec(
      "SELECT o.floor, (SELECT max(f.token) FROM fenceguard.fences f), EXISTS (SELECT FROM fenceguard.fences)"
      " FROM (SELECT) one LEFT JOIN fenceguard.floor o ON true")[0];
  if (row[0].is_null()) {
    return {{Level::danger, name,
             "there is no floor, so every claim is refused: restore it, or run 'fenceguard fence init'"}};
  }
  const auto floor = row[0].as<std::int64_t>();
  const auto highest = row[1].is_null() ? floor : std::max(floor, row[1].as<std::int64_t>());
  return {
      {Level::ok, name,
       fmt::format("floor {}, highest token {}{}", floor, highest, row[2].as<bool>() ? "" : ", no records")}};
}

// The present state of a table's triggers, and of its children's.
Findings look_at_protected(pqxx::transaction_base& tx, const std::string& name) {
  const auto tables = tx.exec(
      "SELECT p.relation::text, p.is_always, pg_has_role(current_user, c.relowner, 'usage') AND NOT "
      "r.rolsuper,"
      " coalesce(to_jsonb(p) ->> 'mode', 'enforce') = 'observe', EXISTS (SELECT FROM pg_catalog.pg_trigger g"
      " WHERE g.tgrelid = p.relation AND g.tgname = 'fenceguard_session' AND g.tgenabled = 'A')"
      " FROM fenceguard.protected p JOIN pg_catalog.pg_class c ON c.oid = p.relation"
      " JOIN pg_catalog.pg_roles r ON r.rolname = current_user"
      " WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_inherits i JOIN fenceguard.protected q ON q.relation = "
      "i.inhparent"
      " WHERE i.inhrelid = p.relation) ORDER BY 1");
  if (tables.empty()) return {{Level::ok, name, "none: only clients that make claims are fenced"}};
  Findings findings;
  for (const auto& row : tables) {
    const auto table = row[0].as<std::string>();
    if (!row[1].as<bool>()) {
      findings.push_back(
          {Level::danger, name,
           fmt::format("{}: its trigger is disabled or not ENABLE ALWAYS, so rows can be written without "
                       "being judged; run fenceguard.protect() again",
                       table)});
    }
    if (row[3].as<bool>()) {
      findings.push_back({Level::warning, name,
                          fmt::format("{}: in the mode observe, so every write is let through; the view "
                                      "fenceguard.observed tells what enforce would refuse",
                                      table)});
    }
    if (!row[3].as<bool>() && !row[4].as<bool>()) {
      findings.push_back({Level::warning, name,
                          fmt::format("{}: a claim that a session was given as it connected is not admitted, "
                                      "so its writes are refused; run fenceguard.protect() again",
                                      table)});
    }
    if (row[2].as<bool>()) {
      findings.push_back({Level::warning, name,
                          fmt::format("{}: this role owns the table and can undo its protection", table)});
    }
  }
  if (findings.empty()) {
    findings.push_back({Level::ok, name, fmt::format("{}, every row of theirs is judged", tables.size())});
  }
  return findings;
}

Findings look_at_children(pqxx::transaction_base& tx, const std::string& name) {
  const auto rows = tx.exec(
      "SELECT t.parent::text, t.child::text, fenceguard.is_judged(t.child), EXISTS (SELECT FROM "
      "pg_catalog.pg_trigger g"
      " WHERE g.tgrelid = t.child AND g.tgname = 'fenceguard_truncate' AND g.tgenabled = 'A')"
      " FROM (SELECT p.relation AS parent, p.relation AS child FROM fenceguard.protected p"
      " UNION SELECT p.relation, c FROM fenceguard.protected p, fenceguard.children(p.relation) c"
      " WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_inherits i JOIN fenceguard.protected q ON q.relation = "
      "i.inhparent"
      " WHERE i.inhrelid = p.relation)) t ORDER BY 1, 2");
  Findings findings;
  for (const auto& row : rows) {
    const auto parent = row[0].as<std::string>();
    const auto child = row[1].as<std::string>();
    if (!row[2].as<bool>() && parent != child) {
      findings.push_back(
          {Level::danger, name,
           fmt::format("{}, a child of {}, is not protected: run fenceguard.protect() for {} again", child,
                       parent, parent)});
    } else if (!row[3].as<bool>()) {
      findings.push_back(
          {Level::warning, name,
           fmt::format("{} can be truncated without a claim: run fenceguard.protect() for {} again", child,
                       parent)});
    }
  }
  if (findings.empty()) {
    findings.push_back({Level::ok, name, rows.empty() ? "none" : "all are protected, against TRUNCATE too"});
  }
  return findings;
}

Findings look_at_event_trigger(pqxx::transaction_base& tx, const std::string& name) {
  const auto rows = tx.exec(
      "SELECT e.evtenabled = 'A' FROM pg_catalog.pg_event_trigger e WHERE e.evtname = 'fenceguard_children'");
  if (!rows.empty() && rows[0][0].as<bool>())
    return {{Level::ok, name, "tables that are added to a protected one are protected as they come"}};
  return {{Level::warning, name,
           fmt::format("{}: after a child was added to a protected table, statements on it fail until "
                       "fenceguard.protect() was run again; a superuser who installs the SQL again makes it",
                       rows.empty() ? "none" : "disabled")}};
}

Findings look_at_counter(pqxx::transaction_base& tx, const std::string& name) {
  const auto row = tx.exec(
      "SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END,"
      " greatest((SELECT max(f.token) FROM fenceguard.fences f), (SELECT o.floor FROM fenceguard.floor o), 0)"
      " FROM fenceguard.token s")[0];
  const auto last = row[0].as<std::int64_t>();
  const auto highest = row[1].as<std::int64_t>();
  if (last >= highest) return {{Level::ok, name, fmt::format("last token drawn: {}", last)}};
  return {
      {Level::warning, name,
       fmt::format(
           "at {}, behind the fences, which have seen {}: another source is in use, or it was set back. A "
           "fresh lease that is refused raises it by itself; or run 'fenceguard lease raise'",
           last, highest)}};
}

Findings look_at_leases(pqxx::transaction_base& tx, const std::string& name) {
  const auto row =
      tx.exec("SELECT count(*), count(*) FILTER (WHERE l.kept_by <> 'ttl') FROM fenceguard.lease l")[0];
  return {{Level::ok, name,
           fmt::format("{} live, {} of them by a connection", row[0].as<int>(), row[1].as<int>())}};
}

}  // namespace

std::vector<Check> role_checks() {
  return {{"rights", look_at_rights}, {"cutting", look_at_cutting}};
}

std::vector<Check> fence_checks() {
  return {{"fences", look_at_fences},
          {"protected tables", look_at_protected},
          {"children", look_at_children},
          {"event trigger", look_at_event_trigger},
          {"counter", look_at_counter}};
}

std::vector<Check> source_checks() {
  return {{"counter", look_at_counter}, {"leases", look_at_leases}};
}

}  // namespace fenceguard::postgres
