#include "adapters/postgres/versioned_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "adapters/postgres/errors.hpp"
#include "adapters/postgres/fences/commit_warning.hpp"
#include "adapters/postgres/fences/rulings.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

using Value = VersionedTable::Value;

// An advance commits durably whatever the session says: this runs where the row's token rises, in the very
// statement, and holds until its transaction ends. Always true; a stronger setting stays.
constexpr const char* durably =
    "pg_catalog.set_config('synchronous_commit', "
    "CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') "
    "THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END, true) IS NOT NULL";

// A statement that is not in a transaction of the caller's commits by itself.
Stage stage_of(const pqxx::transaction_base& tx) {
  return dynamic_cast<const pqxx::nontransaction*>(&tx) != nullptr ? Stage::statement : Stage::before_commit;
}

// To a condition of what writes: the warning of such a commit reaches the client whatever the session says.
std::string and_hear_standby(const pqxx::transaction_base& tx) {
  return stage_of(tx) == Stage::statement ? std::string{" AND "} + hear_standby_sql : "";
}

void doom_if_refused(pqxx::transaction_base& tx, RowVerdict verdict) {
  const bool is_refused = verdict == RowVerdict::stale || verdict == RowVerdict::conflict;
  if (is_refused && stage_of(tx) == Stage::before_commit) doom(tx);
}

// A row that would be written now was not written by the statement: another transaction came and went.
[[noreturn]] void raise_overtaken(const std::string& relation) {
  throw Unavailable(fmt::format(
      "the row of {} changed while it was written, or a trigger kept it from being written: try again",
      relation));
}

}  // namespace

// The parts of which the statements are made, with their parameters.
class VersionedTable::Statement {
 public:
  explicit Statement(const TableSchema& schema) : schema_{schema} {}

  std::string add(const Value& value) {
    if (value && value->find('\0') != std::string::npos) {
      throw InvalidInput("a value has a null byte, which PostgreSQL's text cannot hold");
    }
    values_.push_back(value);
    return fmt::format("${}", values_.size());
  }

  void add_key(const Key& key) {
    if (key.size() != schema_.key.size()) {
      throw InvalidInput(fmt::format("the key of {} has {} columns, and {} values were given",
                                     schema_.relation, schema_.key.size(), key.size()));
    }
    for (std::size_t i = 0; i < key.size(); ++i) {
      if (!key[i]) throw InvalidInput(fmt::format("the key column {} is null", schema_.key[i]));
      key_ += fmt::format("{}t.{} = {}", i == 0 ? "" : " AND ", schema_.key[i], add(key[i]));
    }
  }

  // The claim's token is a literal: a number, and no secret.
  void add_claim(const Claim& claim) {
    token_ = fmt::format("{}::bigint", claim.token.value());
    if (!schema_.holder.empty()) holder_ = add(claim.holder.id()) + "::text";
  }

  [[nodiscard]] const std::string& key() const noexcept { return key_; }

  [[nodiscard]] std::string claim_columns() const {
    const auto token = fmt::format("{} = {}", schema_.token, token_);
    return holder_.empty() ? token : fmt::format("{}, {} = {}", token, schema_.holder, holder_);
  }

  // The rule: equal needs the same holder, greater advances, less is stale.
  [[nodiscard]] std::string is_admitted(const char* and_then = "true") const {
    return fmt::format("((t.{0} = {1} AND {2}) OR ((t.{0} IS NULL OR t.{0} < {1}) AND {3}))", schema_.token,
                       token_, is_same_holder(), and_then);
  }

  [[nodiscard]] std::string is_same_holder() const {
    return holder_.empty() ? "true" : fmt::format("coalesce(t.{}, '') = {}", schema_.holder, holder_);
  }

  // As text that reads the same whatever the session's settings are.
  [[nodiscard]] std::string version_text() const {
    if (!schema_.is_version_a_time) return fmt::format("t.{}::text", schema_.version);
    return fmt::format(R"(pg_catalog.to_char(t.{} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))",
                       schema_.version);
  }

  [[nodiscard]] std::string has_version(const std::string& version) {
    return fmt::format("t.{} = {}::{}", schema_.version, add(version),
                       schema_.is_version_a_time ? "timestamptz" : "bigint");
  }

  [[nodiscard]] std::string next_version() const {
    if (!schema_.is_version_a_time) return fmt::format("t.{} + 1", schema_.version);
    return fmt::format("greatest(pg_catalog.clock_timestamp(), t.{} + interval '1 microsecond')",
                       schema_.version);
  }

  // What is there where nothing was written: the row as it is now, locked, not as an old snapshot shows it.
  [[nodiscard]] std::string present(std::string_view condition) const {
    return fmt::format(
        "SELECT {} AS version, coalesce(t.{}, 0) AS token, {} AS is_admitted FROM {} AS t "
        "WHERE {} AND {} FOR NO KEY UPDATE OF t",
        version_text(), schema_.token, is_admitted(), schema_.relation, key_, condition);
  }

  [[nodiscard]] std::string columns() const {
    std::string list;
    for (const auto& name : schema_.columns) list += fmt::format(", t.{}", schema_.quoted.at(name));
    return list;
  }

  pqxx::result run(pqxx::transaction_base& tx, const std::string& sql) const {
    return run(tx, sql, stage_of(tx));
  }

  pqxx::result run(pqxx::transaction_base& tx, const std::string& sql, Stage stage) const {
    try {
      if (stage != Stage::statement) return exec_values(tx, sql, values_);
      return unless_warned_by_standby(tx, [&] { return exec_values(tx, sql, values_); });
    } catch (...) {
      // A value that its column cannot take is the caller's to correct.
      if (current_state().starts_with("22")) raise_current(stage, "a row of " + schema_.relation);
      raise_or_pass(stage, "a row of " + schema_.relation);
    }
  }

 private:
  const TableSchema& schema_;
  std::vector<Value> values_;
  std::string key_;
  std::string token_;
  std::string holder_;
};

VersionedTable::VersionedTable(pqxx::connection& connection, const VersionedTableNames& names)
    : schema_{mapped(Stage::before_commit, "looking up a table", [&] {
        pqxx::nontransaction tx{connection};
        return check_table(tx, names);
      })} {}

VersionedTable::Row VersionedTable::row_of(const Key& key, const pqxx::row& found, int version) const {
  Row row{key, found[version].c_str(), {}};
  auto position = version;
  for (const auto& name : schema_.columns) {
    const auto field = found[++position];
    row.values[name] = field.is_null() ? Value{} : Value{field.c_str()};
  }
  return row;
}

std::optional<VersionedTable::Row> VersionedTable::read(pqxx::transaction_base& tx, const Key& key) const {
  Statement statement{schema_};
  statement.add_key(key);
  const auto rows = statement.run(tx,
                                  fmt::format("SELECT {}{} FROM {} AS t WHERE {}", statement.version_text(),
                                              statement.columns(), schema_.relation, statement.key()),
                                  Stage::before_commit);
  if (rows.empty()) return std::nullopt;
  return row_of(key, rows[0], 0);
}

VersionedTable::Read VersionedTable::fenced_read(pqxx::transaction_base& tx, const Claim& claim,
                                                 const Key& key) const {
  Statement statement{schema_};
  statement.add_key(key);
  statement.add_claim(claim);
  // Named by their places: a column of the user's may have any name.
  std::string places;
  for (std::size_t i = 0; i < schema_.columns.size(); ++i) places += fmt::format(", c{}", i);
  const auto rows = statement.run(
      tx, fmt::format("WITH written (is_written, version{}) AS (UPDATE {} AS t SET {} WHERE {} AND {}{} "
                      "RETURNING true, {}{}), present AS ({}) "
                      "SELECT p.token, p.is_admitted, w.is_written, w.version{} FROM (SELECT) one "
                      "LEFT JOIN written w ON true LEFT JOIN present p ON true",
                      places, schema_.relation, statement.claim_columns(), statement.key(),
                      statement.is_admitted(durably), and_hear_standby(tx), statement.version_text(),
                      statement.columns(), statement.present("NOT EXISTS (SELECT FROM written)"), places));
  const auto& found = rows[0];
  if (!found[2].is_null()) return {RowVerdict::admitted, row_of(key, found, 3), claim.token.value()};
  if (found[0].is_null()) return {RowVerdict::not_found, std::nullopt, 0};
  if (found[1].as<bool>()) raise_overtaken(schema_.relation);
  const auto highest = found[0].as<std::int64_t>();
  const auto verdict = highest > claim.token.value() ? RowVerdict::stale : RowVerdict::conflict;
  doom_if_refused(tx, verdict);
  return {verdict, std::nullopt, highest};
}

void VersionedTable::require_changes(const Changes& changes) const {
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    const auto found = schema_.quoted.find(change->first);
    if (found == schema_.quoted.end()) {
      throw InvalidInput(fmt::format("{} has no column {}", schema_.relation, change->first));
    }
    const auto& name = found->second;
    if (name == schema_.version || name == schema_.token || name == schema_.holder ||
        std::ranges::find(schema_.key, name) != schema_.key.end()) {
      throw InvalidInput(fmt::format("the column {} is part of the key or of the fence", change->first));
    }
    if (std::any_of(changes.begin(), change, [&](const auto& one) { return one.first == change->first; })) {
      throw InvalidInput(fmt::format("the column {} is changed twice", change->first));
    }
  }
}

VersionedTable::Update VersionedTable::update(pqxx::transaction_base& tx, const Claim& claim, const Row& row,
                                              const Changes& changes) const {
  require_changes(changes);
  Statement statement{schema_};
  statement.add_key(row.key);
  statement.add_claim(claim);
  std::string set = statement.claim_columns();
  for (const auto& [name, value] : changes) {
    set += fmt::format(", {} = {}", schema_.quoted.at(name), statement.add(value));
  }
  const auto condition = statement.has_version(row.version);
  const auto written =
      statement.run(tx, fmt::format("UPDATE {} AS t SET {} = {}, {} WHERE {} AND {} AND {}{} RETURNING {}",
                                    schema_.relation, schema_.version, statement.next_version(), set,
                                    statement.key(), condition, statement.is_admitted(durably),
                                    and_hear_standby(tx), statement.version_text()));
  if (!written.empty()) return {RowVerdict::admitted, written[0][0].c_str(), claim.token.value()};
  // Nothing was written, and the row tells why. It may have changed once more; then it tells of that.
  Statement asking{schema_};
  asking.add_key(row.key);
  asking.add_claim(claim);
  const auto rows = asking.run(tx, asking.present("true"), Stage::before_commit);
  if (rows.empty()) return {};
  const auto found = rows[0];
  Update answer{RowVerdict::admitted, found[0].c_str(), claim.token.value()};
  answer.highest = found[1].as<std::int64_t>();
  if (found[2].as<bool>()) {
    if (answer.version == row.version) raise_overtaken(schema_.relation);
    answer.verdict = RowVerdict::version_conflict;
    return answer;
  }
  answer.version.clear();
  answer.verdict = answer.highest > claim.token.value() ? RowVerdict::stale : RowVerdict::conflict;
  doom_if_refused(tx, answer.verdict);
  return answer;
}

std::optional<VersionedTable::Row> VersionedTable::read(pqxx::connection& connection, const Key& key) const {
  pqxx::nontransaction tx{connection};
  return read(tx, key);
}

VersionedTable::Read VersionedTable::fenced_read(pqxx::connection& connection, const Claim& claim,
                                                 const Key& key) const {
  pqxx::nontransaction tx{connection};
  return fenced_read(tx, claim, key);
}

VersionedTable::Update VersionedTable::update(pqxx::connection& connection, const Claim& claim,
                                              const Row& row, const Changes& changes) const {
  pqxx::nontransaction tx{connection};
  return update(tx, claim, row, changes);
}

}  // namespace fenceguard::postgres
