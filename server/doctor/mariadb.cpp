#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "adapters/mariadb/connection.hpp"
#include "adapters/mariadb/errors.hpp"
#include "guard/error.hpp"
#include "guard/token.hpp"
#include "server/doctor/doctor.hpp"

namespace fenceguard::mariadb {
namespace {

using Level = Finding::Level;

constexpr std::size_t named_max = 5;
constexpr int long_open_s = 60;

// The first field of the first row; empty if there is none.
std::string first_of(const Rows& rows) {
  return rows.empty() || rows[0].empty() ? "" : rows[0][0].value_or("");
}

// 'a, b and 3 more'.
std::string names_of(const Rows& rows) {
  std::string names;
  for (std::size_t i = 0; i < std::min(rows.size(), named_max); ++i)
    names += (i == 0 ? "" : ", ") + rows[i][0].value_or("");
  if (rows.size() > named_max) names += fmt::format(" and {} more", rows.size() - named_max);
  return names;
}

bool is_on(const std::string& value) {
  return value == "1" || value == "ON" || value == "YES";
}

class Examination {
 public:
  explicit Examination(const Url& url) : address_{address_of(url, {"lock"})}, connection_{address_} {}

  [[nodiscard]] Findings server();
  [[nodiscard]] Findings fences();
  [[nodiscard]] Findings source();

 private:
  // A check that looks. What this user may not see is a warning.
  void look(const char* name, const std::function<Finding(const char*)>& check);

  [[nodiscard]] std::string variable(const std::string& name) {
    const auto rows = connection_.run("SHOW GLOBAL VARIABLES LIKE ?", {name});
    return rows.empty() ? "" : rows[0][1].value_or("");
  }
  [[nodiscard]] std::string table(std::string_view name) const {
    return fmt::format("{}.{}", quoted_name(address_.schema), name);
  }

  Finding look_at_version(const char* name);
  Finding look_at_commits(const char* name);
  Finding look_at_binary_log(const char* name);
  Finding look_at_replicas(const char* name);
  Finding look_at_errors(const char* name);
  Finding look_at_tables(const char* name);
  Finding look_at_transactions(const char* name);
  Finding look_at_cut(const char* name);
  Finding look_at_rights(const char* name);
  Finding look_at_schema(const char* name);
  Finding look_at_protection(const char* name);

  const Address address_;
  Connection connection_;
  Findings findings_;
};

void Examination::look(const char* name, const std::function<Finding(const char*)>& check) {
  try {
    findings_.push_back(check(name));
  } catch (const ServerError& error) {
    findings_.push_back(
        {Level::warning, name, fmt::format("cannot be looked at with this user: {}", error.what())});
  } catch (const ConnectionLost& error) {
    throw Unavailable(fmt::format("{}: {}", name, error.what()));
  }
}

Finding Examination::look_at_version(const char* name) {
  const auto version = first_of(connection_.run("SELECT VERSION()"));
  const auto dot = version.find('.');
  const auto major = parse_decimal(version.substr(0, dot)).value_or(0);
  const auto minor_text = dot == version.npos ? "" : version.substr(dot + 1);
  const auto minor = parse_decimal(minor_text.substr(0, minor_text.find('.'))).value_or(0);
  if (version.find("MariaDB") == version.npos) {
    const auto message = "MySQL " + version;
    if (major >= 8) {
      return {Level::warning, name,
              message + ": every statement of ours is one of MySQL 8, but none was tried there"};
    }
    return {Level::danger, name, message + ": MySQL 8 or later is needed"};
  }
  if (major > 10 || (major == 10 && minor >= 6)) return {Level::ok, name, version};
  return {Level::danger, name, version + ": MariaDB 10.6 or later is needed"};
}

Finding Examination::look_at_commits(const char* name) {
  const auto flush = variable("innodb_flush_log_at_trx_commit");
  if (flush != "1" && flush != "3") {
    return {Level::danger, name,
            fmt::format(
                "innodb_flush_log_at_trx_commit = {}: what was acknowledged may be gone after a crash, and "
                "no fence is raised; set it to 1",
                flush)};
  }
  if (!is_on(variable("innodb_doublewrite"))) {
    return {
        Level::danger, name,
        "innodb_doublewrite is off: a page that was half written in a crash damages fences without a word"};
  }
  return {Level::ok, name, fmt::format("innodb_flush_log_at_trx_commit = {}", flush)};
}

Finding Examination::look_at_binary_log(const char* name) {
  if (!is_on(variable("log_bin"))) return {Level::ok, name, "none"};
  const auto synced = variable("sync_binlog");
  const auto format = variable("binlog_format");
  if (synced != "1") {
    return {Level::danger, name,
            fmt::format(
                "sync_binlog = {}: recovery forgets what is not in the log, and no fence is raised; set it "
                "to 1",
                synced)};
  }
  if (format == "STATEMENT") {
    return {
        Level::danger, name,
        "binlog_format = STATEMENT: the fences' transactions are READ COMMITTED, and fail; set it to ROW or "
        "MIXED"};
  }
  if (format == "MIXED") {
    return {
        Level::warning, name,
        "binlog_format = MIXED: no claim is let in within a stored function or trigger, so protected tables "
        "refuse every write; set it to ROW if there are any"};
  }
  return {Level::ok, name, fmt::format("{}, sync_binlog = 1", format)};
}

// What they take away with them.
Finding Examination::look_at_errors(const char* name) {
  constexpr std::string_view whole =
      "{} is on: {} rolls the whole transaction back, its admission with it, and a client that goes on "
      "behind the error writes unguarded";
  if (is_on(variable("innodb_rollback_on_timeout"))) {
    return {Level::warning, name,
            fmt::format(whole, "innodb_rollback_on_timeout", "a wait for a lock (1205)")};
  }
  if (is_on(variable("innodb_snapshot_isolation"))) {
    return {Level::warning, name,
            fmt::format(whole, "innodb_snapshot_isolation",
                        "a row that was changed behind a REPEATABLE READ snapshot (1020)")};
  }
  return {Level::ok, name, "only a deadlock (1213) rolls a whole transaction back"};
}

Finding Examination::look_at_replicas(const char* name) {
  if (is_on(variable("wsrep_on"))) {
    return {Level::warning, name,
            "a node of a Galera cluster: an advance on one node does not wait for writers on another, whose "
            "COMMIT is refused (1213); see docs/mariadb/galera.md"};
  }
  if (is_on(variable("read_only")))
    return {Level::danger, name, "read_only: it takes no claims; go to the primary"};
  const auto attached = first_of(connection_.run(
      "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"));
  if (attached == "0") return {Level::ok, name, "the primary; no replica is attached"};
  if (is_on(variable("rpl_semi_sync_master_enabled")) || is_on(variable("rpl_semi_sync_source_enabled"))) {
    return {Level::ok, name,
            fmt::format("the primary; {} attached, semi-synchronous until a time-out", attached)};
  }
  return {Level::warning, name,
          fmt::format(
              "the primary; {} attached, asynchronous: one that is promoted may have forgotten acknowledged "
              "fences with their data, and a token that is then issued again is a conflict",
              attached)};
}

Finding Examination::look_at_tables(const char* name) {
  const auto rows = connection_.run(
      "SELECT CONCAT(t.table_schema, '.', t.table_name, ' (', t.engine, ')') FROM information_schema.tables "
      "t WHERE "
      "t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND t.engine <> 'InnoDB' AND t.table_schema IN (?, "
      "?) ORDER BY 1",
      {address_.database.empty() ? address_.schema : address_.database, address_.schema});
  if (!rows.empty()) {
    return {Level::danger, name,
            names_of(rows) +
                ": no transactions, so a write there is not rolled back with a claim that was refused"};
  }
  return {Level::ok, name, address_.database.empty() ? "all of the fences are InnoDB" : "all are InnoDB"};
}

Finding Examination::look_at_transactions(const char* name) {
  const auto prepared = connection_.run("XA RECOVER");
  if (!prepared.empty()) {
    return {
        Level::danger, name,
        fmt::format("{} prepared (XA): one that holds a claim keeps the next holder out until it is ended by "
                    "hand, and survives a restart",
                    prepared.size())};
  }
  const auto open = connection_.run(fmt::format(
      "SELECT CONCAT('session ', t.trx_mysql_thread_id) FROM information_schema.innodb_trx t WHERE "
      "t.trx_started < NOW() - INTERVAL {} SECOND AND t.trx_mysql_thread_id <> CONNECTION_ID()",
      long_open_s));
  if (!open.empty()) {
    return {Level::warning, name,
            fmt::format(
                "open for more than {} s: {}; one under a claim keeps the next holder out until it ends, or "
                "is ended by KILL",
                long_open_s, names_of(open))};
  }
  if (variable("idle_write_transaction_timeout") == "0" && variable("idle_transaction_timeout") == "0") {
    return {Level::warning, name,
            "none is open for long, and the server would end none: a client that stands still under a claim "
            "keeps the next holder out, unless that one may end it (PROCESS, CONNECTION ADMIN); set "
            "idle_write_transaction_timeout and idle_readonly_transaction_timeout, or "
            "idle_transaction_timeout"};
  }
  return {Level::ok, name, "none is open for long"};
}

Finding Examination::look_at_rights(const char* name) {
  const auto rows = connection_.run(
      "SELECT DISTINCT p.grantee FROM information_schema.schema_privileges p WHERE p.table_schema = ? AND "
      "p.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'DROP', 'ALTER') ORDER BY 1",
      {address_.schema});
  if (rows.empty()) return {Level::ok, name, "no user was given the fences' tables"};
  return {
      Level::warning, name,
      names_of(rows) + " may write to the fences' tables, and so bypass them; EXECUTE is enough for writers"};
}

Finding Examination::look_at_cut(const char* name) {
  bool sees = false;
  bool ends = false;
  for (const auto& row : connection_.run("SHOW GRANTS")) {
    const auto& grant = row.at(0).value();
    const auto holds = [&](const char* privilege) { return grant.find(privilege) != std::string::npos; };
    if (!holds(" ON *.* TO ")) continue;
    const bool is_all = holds("ALL PRIVILEGES");
    sees = sees || is_all || holds("PROCESS");
    ends = ends || is_all || holds("CONNECTION ADMIN") || holds("SUPER");
  }
  if (!sees) {
    return {
        Level::warning, name,
        "without PROCESS this user cuts no holder: one that stands still in its transaction keeps it out"};
  }
  return {Level::ok, name,
          ends ? "this user may cut holders that stand still"
               : "this user may cut holders that are the same user; for others it needs CONNECTION ADMIN"};
}

Finding Examination::look_at_schema(const char* name) {
  try {
    const auto rows =
        connection_.run(fmt::format("SELECT n.version, n.floor_token FROM {} n", table("namespace")));
    if (rows.empty()) {
      return {Level::danger, name,
              "namespace not initialised (no floor): claims are refused; run 'fenceguard fence init'"};
    }
    return {Level::ok, name,
            fmt::format("version {}, floor {}", rows[0][0].value_or(""), rows[0][1].value_or(""))};
  } catch (const ServerError& error) {
    if (!is_not_installed(error)) throw;
    return {Level::danger, name,
            fmt::format("the fences are not installed in {}: run 'fenceguard sql mariadb | mariadb'",
                        address_.schema)};
  }
}

// What the row triggers of protected tables do not see.
Finding Examination::look_at_protection(const char* name) {
  constexpr const char* protected_tables =
      "SELECT t.event_object_schema AS db, t.event_object_table AS name, COUNT(*) AS triggers FROM "
      "information_schema.triggers t WHERE t.trigger_name LIKE 'fenceguard\\_%' AND t.action_statement LIKE "
      "'%.require\\_row%' GROUP BY 1, 2";
  const auto all =
      connection_.run(fmt::format("SELECT CONCAT(p.db, '.', p.name) FROM ({}) p", protected_tables));
  if (all.empty()) return {Level::ok, name, "no table is protected"};
  const auto partly = connection_.run(
      fmt::format("SELECT CONCAT(p.db, '.', p.name) FROM ({}) p WHERE p.triggers < 5", protected_tables));
  if (!partly.empty())
    return {Level::danger, name, names_of(partly) + ": a trigger is missing; protect it again"};
  const auto cascades = connection_.run(fmt::format(
      "SELECT CONCAT(p.db, '.', p.name, ' (', r.constraint_name, ')') FROM ({}) p JOIN "
      "information_schema.referential_constraints r ON r.constraint_schema = p.db AND r.table_name = p.name "
      "WHERE "
      "r.delete_rule NOT IN ('RESTRICT', 'NO ACTION') OR r.update_rule NOT IN ('RESTRICT', 'NO ACTION')",
      protected_tables));
  if (!cascades.empty()) {
    return {
        Level::danger, name,
        names_of(cascades) + ": what a foreign key's action writes is seen by no trigger; make it RESTRICT"};
  }
  const auto droppers =
      connection_.run(fmt::format("SELECT DISTINCT s.grantee FROM information_schema.schema_privileges s "
                                  "JOIN ({}) p ON p.db = s.table_schema "
                                  "WHERE s.privilege_type IN ('DROP', 'ALTER', 'TRIGGER')",
                                  protected_tables));
  if (!droppers.empty()) {
    return {Level::warning, name,
            fmt::format("{}: {} may TRUNCATE it, or take the triggers away (DROP, ALTER, TRIGGER)",
                        names_of(all), names_of(droppers))};
  }
  return {Level::ok, name, names_of(all)};
}

Findings Examination::server() {
  look("version", [this](const char* name) { return look_at_version(name); });
  look("commits", [this](const char* name) { return look_at_commits(name); });
  look("binary log", [this](const char* name) { return look_at_binary_log(name); });
  look("replication", [this](const char* name) { return look_at_replicas(name); });
  look("errors", [this](const char* name) { return look_at_errors(name); });
  look("autocommit", [this](const char* name) {
    if (is_on(variable("autocommit"))) return Finding{Level::ok, name, "on by default"};
    return Finding{
        Level::warning, name,
        "off by default: a client that only reads keeps its first snapshot, in which a later claim is "
        "refused (40001) until it says COMMIT"};
  });
  return std::move(findings_);
}

Findings Examination::fences() {
  auto findings = server();
  look("schema", [this](const char* name) { return look_at_schema(name); });
  look("tables", [this](const char* name) { return look_at_tables(name); });
  look("transactions", [this](const char* name) { return look_at_transactions(name); });
  look("cut", [this](const char* name) { return look_at_cut(name); });
  look("rights", [this](const char* name) { return look_at_rights(name); });
  look("protected tables", [this](const char* name) { return look_at_protection(name); });
  std::ranges::move(findings_, std::back_inserter(findings));
  return findings;
}

Findings Examination::source() {
  auto findings = server();
  look("schema", [this](const char* name) { return look_at_schema(name); });
  if (findings_.back().level == Level::ok) {
    look("counter", [this](const char* name) {
      const auto rows = connection_.run(fmt::format("SELECT c.last FROM {} c", table("counter")));
      if (rows.empty()) {
        return Finding{Level::danger, name,
                       "missing: restore it, or raise it above the highest fence ('fenceguard lease raise')"};
      }
      const auto mark = first_of(connection_.run(
          fmt::format("SELECT COALESCE(MAX(f.token), 0) FROM {} f WHERE f.token > (SELECT c.last FROM {} c)",
                      table("fences"), table("counter"))));
      if (mark == "0") return Finding{Level::ok, name, "at " + first_of(rows)};
      return Finding{
          Level::warning, name,
          fmt::format("at {}, and a fence at {}: tokens came from elsewhere, or this was restored; a "
                      "holder that is stale though fresh raises it",
                      first_of(rows), mark)};
    });
  }
  std::ranges::move(findings_, std::back_inserter(findings));
  return findings;
}

}  // namespace

Findings examine_source(const Url& url) {
  return Examination{url}.source();
}

Findings examine_storage(const Url& url) {
  return Examination{url}.fences();
}

}  // namespace fenceguard::mariadb
