// The doctor's checks of a server, and of the role that it is reached with.

#include <fmt/format.h>

#include "adapters/postgres/pqxx_versions.hpp"
#include "server/doctor/postgres_checks.hpp"

namespace fenceguard::postgres {
namespace {

using Level = Finding::Level;

constexpr int version_min = 130000;
constexpr int locks_wanted = 64;  // PostgreSQL's own default

std::string setting(pqxx::transaction_base& tx, const char* name) {
  return exec_params(tx, "SELECT pg_catalog.current_setting($1)", name)[0][0].as<std::string>();
}

Findings look_at_version(pqxx::transaction_base& tx, const std::string& name) {
  const auto message = "PostgreSQL " + setting(tx, "server_version");
  if (std::stoi(setting(tx, "server_version_num")) >= version_min) return {{Level::ok, name, message}};
  return {{Level::danger, name, message + ": 13 or later is needed"}};
}

Findings look_at_recovery(pqxx::transaction_base& tx, const std::string& name) {
  if (!tx.exec("SELECT pg_catalog.pg_is_in_recovery()")[0][0].as<bool>())
    return {{Level::ok, name, "the primary"}};
  return {
      {Level::danger, name,
       "a standby: its fences may be older than the primary's, and it takes no claims; go to the primary"}};
}

Findings look_at_fsync(pqxx::transaction_base& tx, const std::string& name) {
  if (setting(tx, "fsync") == "on") return {{Level::ok, name, "on"}};
  return {{Level::danger, name,
           "off: after a power failure fences and data are lost or damaged alike; set fsync = on"}};
}

Findings look_at_pages(pqxx::transaction_base& tx, const std::string& name) {
  if (setting(tx, "full_page_writes") == "on") return {{Level::ok, name, "on"}};
  return {{Level::danger, name,
           "off: a page that was half written in a crash damages fences without a word; set full_page_writes "
           "= on"}};
}

Findings look_at_commit(pqxx::transaction_base& tx, const std::string& name) {
  const auto value = setting(tx, "synchronous_commit");
  if (value == "on" || value == "remote_apply") return {{Level::ok, name, value}};
  return {{Level::warning, name,
           value + ": advances and grants commit with 'on' all the same, so no stale write lands; but a "
                   "write of yours that "
                   "was acknowledged under it can be gone after a crash"}};
}

Findings look_at_replication(pqxx::transaction_base& tx, const std::string& name) {
  const auto names = setting(tx, "synchronous_standby_names");
  const auto row = tx.exec(
      "SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM "
      "pg_catalog.pg_stat_replication")[0];
  const auto attached = row[0].as<int>();
  if (attached == 0 && names.empty()) return {{Level::ok, name, "no standby"}};
  if (!names.empty()) {
    return {{Level::ok, name,
             fmt::format("synchronous to '{}': {} attached, {} of them synchronous", names, attached,
                         row[1].as<int>())}};
  }
  return {
      {Level::warning, name,
       fmt::format(
           "{} attached, none synchronous: a standby that is promoted may have forgotten acknowledged fences "
           "with their data, and a token that is then issued again to another holder is a conflict; set "
           "synchronous_standby_names",
           attached)}};
}

Findings look_at_prepared(pqxx::transaction_base& tx, const std::string& name) {
  const auto rows = tx.exec(
      "SELECT p.gid, date_trunc('second', now() - p.prepared) FROM pg_catalog.pg_prepared_xacts p"
      " WHERE p.database = current_database() AND EXISTS (SELECT FROM pg_catalog.pg_locks x"
      " JOIN pg_catalog.pg_locks l USING (virtualtransaction) WHERE x.pid IS NULL AND l.pid IS NULL"
      " AND x.locktype = 'transactionid' AND x.transactionid = p.transaction AND l.locktype = 'advisory')"
      " ORDER BY p.prepared");
  if (rows.empty()) return {{Level::ok, name, "none with a claim"}};
  Findings findings;
  for (const auto& row : rows) {
    findings.push_back(
        {Level::danger, name,
         fmt::format("'{}' holds a claim since {}: nobody can advance past it, and it cannot be cut; "
                     "COMMIT PREPARED or ROLLBACK PREPARED",
                     row[0].as<std::string>(), row[1].as<std::string>())});
  }
  return findings;
}

Findings look_at_encoding(pqxx::transaction_base& tx, const std::string& name) {
  const auto value = setting(tx, "server_encoding");
  if (value == "UTF8") return {{Level::ok, name, value}};
  return {{Level::danger, name,
           value + ": names of resources are UTF-8; make the database with ENCODING 'UTF8'"}};
}

Findings look_at_idle(pqxx::transaction_base& tx, const std::string& name) {
  const auto value = setting(tx, "idle_in_transaction_session_timeout");
  if (value != "0") return {{Level::ok, name, value}};
  return {{Level::ok, name,
           "0: a client that was stopped inside a transaction stays until an advance cuts it; a limit of "
           "some minutes "
           "also frees its other locks"}};
}

Findings look_at_locks(pqxx::transaction_base& tx, const std::string& name) {
  const int each = std::stoi(setting(tx, "max_locks_per_transaction"));
  const int connections = std::stoi(setting(tx, "max_connections"));
  const auto message = fmt::format(
      "{}: room for some {} locks at a time; a transaction takes one for each of its claims, an advance five",
      each, static_cast<long long>(each) * connections);
  if (each >= locks_wanted) return {{Level::ok, name, message}};
  return {{Level::warning, name, message + "; raise it if transactions carry many claims"}};
}

Findings look_at_superuser(pqxx::transaction_base& tx, const std::string& name) {
  const auto row =
      tx.exec("SELECT current_user, r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user")[0];
  const auto user = row[0].as<std::string>();
  if (!row[1].as<bool>()) return {{Level::ok, name, fmt::format("{}, no superuser", user)}};
  return {
      {Level::warning, name,
       fmt::format("{} is a superuser, who can undo every protection: give applications a role of their own",
                   user)}};
}

// Whether the sidecar can stand in front, for clients with this role's rights.
Findings look_at_sidecar(pqxx::transaction_base& tx, const std::string& name) {
  constexpr int reports_read_only = 140'000, guards_large_objects = 160'000;
  const int version = std::stoi(setting(tx, "server_version_num"));
  if (version < reports_read_only)
    return {{Level::ok, name, "PostgreSQL 14 or later is needed for 'serve --listen' in front of it"}};
  const auto may_advance = tx.exec(
      "SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.bool_and("
      "pg_catalog.has_function_privilege(p.oid, 'EXECUTE')) FROM pg_catalog.pg_namespace n "
      "JOIN pg_catalog.pg_proc p ON p.pronamespace = n.oid AND p.proname IN ('admit', 'admit_all', "
      "'try_advance') "
      "WHERE n.nspname = 'fenceguard' GROUP BY n.oid");
  if (may_advance.empty() || !may_advance[0][0].as<bool>())
    return {
        {Level::ok, name,
         "this role may not call fenceguard.try_advance and admit, which a client of 'serve --listen' does"}};
  return {{Level::ok, name,
           version < guards_large_objects
               ? "can stand in front; a session without a claim can write large objects before PostgreSQL 16"
               : "can stand in front"}};
}

}  // namespace

std::vector<Check> server_checks() {
  return {{"server", look_at_version},
          {"primary", look_at_recovery},
          {"encoding", look_at_encoding},
          {"fsync", look_at_fsync},
          {"full_page_writes", look_at_pages},
          {"synchronous_commit", look_at_commit},
          {"standbys", look_at_replication},
          {"prepared transactions", look_at_prepared},
          {"idle_in_transaction_session_timeout", look_at_idle},
          {"max_locks_per_transaction", look_at_locks},
          {"role", look_at_superuser},
          {"sidecar", look_at_sidecar}};
}

}  // namespace fenceguard::postgres
