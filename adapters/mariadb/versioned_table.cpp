#include "adapters/mariadb/versioned_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "adapters/mariadb/errors.hpp"
#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard::mariadb {
namespace {

// A call outside of a transaction is one of its own.
Stage stage_in(bool is_in_transaction) {
  return is_in_transaction ? Stage::before_commit : Stage::at_commit;
}

bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.size() <= 20 && text.find_first_not_of("0123456789") == text.npos;
}

// What a server in strict mode answers for a value that its column cannot take.
bool is_no_value(unsigned number) {
  static const std::set<unsigned> numbers{1048, 1264, 1265, 1292, 1366, 1367, 1406, 1411};
  return numbers.contains(number);
}

// Any name that the server takes.
std::string quoted_identifier(std::string_view name) {
  std::string quoted = "`";
  for (const char c : name) quoted += c == '`' ? std::string{"``"} : std::string{c};
  return quoted + "`";
}

void require_unique(Connection& connection, const VersionedTableNames& names) {
  std::vector<std::string> key = names.key;
  std::ranges::sort(key);
  std::string joined;
  for (const auto& one : key) joined += (joined.empty() ? "" : ",") + one;
  const auto rows = connection.run(
      "SELECT 1 FROM (SELECT GROUP_CONCAT(s.column_name ORDER BY s.column_name SEPARATOR ',') AS names FROM "
      "information_schema.statistics s WHERE s.table_schema = ? AND s.table_name = ? AND s.non_unique = 0 "
      "GROUP BY "
      "s.index_name HAVING SUM(s.sub_part IS NOT NULL OR s.nullable = 'YES') = 0) i WHERE i.names = ?",
      {names.database, names.table, joined});
  if (rows.empty()) {
    throw InvalidInput(
        fmt::format("the key of {} is not that of a unique index without nulls: ({})", names.table, joined));
  }
}

void require_fit_session(Connection& connection) {
  const auto rows = connection.run(
      "SELECT @@session.sql_mode, @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, "
      "@@global.sync_binlog");
  const auto& row = rows.at(0);
  const auto mode = row[0].value_or("");
  if (mode.find("STRICT_") == mode.npos) {
    throw InvalidInput(
        "this session is not in strict mode, and would write something else than it is told: SET "
        "sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')");
  }
  if (row[1] != "1" && row[1] != "3")
    throw Unavailable("a commit is not durable here: set innodb_flush_log_at_trx_commit = 1");
  if (row[2] != "0" && row[3] != "1")
    throw Unavailable("a commit is not durable here: set sync_binlog = 1, as there is a binary log");
}

}  // namespace

// A row as it is there; nothing: there is none.
struct VersionedTable::Present {
  std::optional<Row> row;
  std::optional<Fence> fence;
};

VersionedTable::VersionedTable(Connection& connection, const VersionedTableNames& names)
    : names_{names},
      relation_{fmt::format("{}.{}", quoted_identifier(names.database), quoted_identifier(names.table))} {
  mapped(Stage::before_commit, "looking up a table", [&] { check(connection, names); });
}

void VersionedTable::check(Connection& connection, const VersionedTableNames& names) {
  require_fit_session(connection);
  const auto engine = connection.run(
      "SELECT t.engine, t.table_type FROM information_schema.tables t WHERE t.table_schema = ? AND "
      "t.table_name = ?",
      {names.database, names.table});
  if (engine.empty()) throw InvalidInput(fmt::format("there is no table {}.{}", names.database, names.table));
  if (engine[0][1] != "BASE TABLE") {
    throw InvalidInput(fmt::format("{} is no ordinary table but of the type {}", names.table,
                                   engine[0][1].value_or("unknown")));
  }
  if (engine[0][0] != "InnoDB") {
    throw InvalidInput(fmt::format("the engine of {} is {}, which has no transactions: make it InnoDB",
                                   names.table, engine[0][0].value_or("unknown")));
  }
  std::map<std::string, mariadb::Row> found;
  for (auto& row : connection.run(
           "SELECT c.column_name, c.data_type, c.is_nullable, COALESCE(c.datetime_precision, 0), "
           "COALESCE(c.character_octet_length, 0), c.column_type FROM information_schema.columns c WHERE "
           "c.table_schema = ? AND c.table_name = ? ORDER BY c.ordinal_position",
           {names.database, names.table})) {
    const auto name = row[0].value_or("");
    const auto type = row[1].value_or("");
    order_.push_back(name);
    columns_[name] = {quoted_identifier(name), type.ends_with("int")};
    found[name] = std::move(row);
  }
  const auto type_of = [&](const std::string& name) -> const mariadb::Row& {
    (void)column(name);
    return found.at(name);
  };
  if (names.key.empty()) throw InvalidInput("a key has at least one column");
  std::set<std::string> roles{names.key.begin(), names.key.end()};
  const std::size_t is_told = names.holder.empty() ? 2 : 3;
  for (const auto& name : {names.version, names.token, names.holder})
    if (!name.empty()) roles.insert(name);
  if (roles.size() != names.key.size() + is_told)
    throw InvalidInput("a column cannot be two of these at once");
  for (const auto& name : names.key) (void)column(name);
  require_unique(connection, names);
  const auto& version = type_of(names.version);
  is_version_a_time_ = version[1] == "datetime";
  // A shorter one comes to its end, where a session without strict mode stays, with one version for all.
  const bool is_long = version[1] == "int" || version[1] == "bigint";
  if (version[2] != "NO" || !(is_long || is_version_a_time_)) {
    throw InvalidInput(
        fmt::format("the version {} is an INT, a BIGINT or a DATETIME(6), NOT NULL", names.version));
  }
  if (is_version_a_time_ && version[3] != "6") {
    throw InvalidInput(fmt::format(
        "the version {} is {}: two writes within its last digit would have one version; make it DATETIME(6)",
        names.version, version[5].value_or("")));
  }
  if (type_of(names.token)[5].value_or("").find("bigint") != 0 ||
      found.at(names.token)[5].value_or("").find("unsigned") != std::string::npos) {
    throw InvalidInput(fmt::format("the token {} is a BIGINT", names.token));
  }
  if (!names.holder.empty() && std::stoll(type_of(names.holder)[4].value_or("0")) < 128) {
    throw InvalidInput(fmt::format("the holder {} is a text of 128 bytes at least", names.holder));
  }
}

const VersionedTable::Column& VersionedTable::column(const std::string& name) const {
  const auto found = columns_.find(name);
  if (found == columns_.end()) throw InvalidInput(fmt::format("{} has no column {}", relation_, name));
  return found->second;
}

// A number as such: as a text it would be compared as a double.
std::string VersionedTable::literal(Connection& connection, const std::string& name,
                                    const Value& value) const {
  if (!value) return "NULL";
  if (!column(name).is_number) return connection.quote(*value);
  if (!is_number(*value)) throw InvalidInput(fmt::format("'{}' is no value of the column {}", *value, name));
  return *value;
}

std::string VersionedTable::where(Connection& connection, const Key& key) const {
  if (key.size() != names_.key.size()) {
    throw InvalidInput(fmt::format("the key of {} has {} columns, and {} values were given", relation_,
                                   names_.key.size(), key.size()));
  }
  std::string text;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const auto& name = names_.key[i];
    if (!key[i]) throw InvalidInput(fmt::format("the key column {} is null", name));
    text += fmt::format("{}t.{} = {}", i == 0 ? "" : " AND ", column(name).quoted,
                        literal(connection, name, key[i]));
  }
  return text;
}

VersionedTable::Present VersionedTable::present(Connection& connection, const Key& key,
                                                const char* lock) const {
  std::string list;
  for (const auto& name : order_) list += (list.empty() ? "t." : ", t.") + column(name).quoted;
  const auto rows = connection.run(
      fmt::format("SELECT {} FROM {} t WHERE {}{}", list, relation_, where(connection, key), lock));
  if (rows.empty()) return {};
  Row row{key, {}, {}};
  for (std::size_t i = 0; i < order_.size(); ++i) row.values[order_[i]] = rows[0][i];
  row.version = row.values.at(names_.version).value_or("");
  std::optional<Fence> fence;
  if (const auto& token = row.values.at(names_.token); token && *token != "0") {
    const auto number = Token::parse(*token);
    if (!number) throw InvalidInput(fmt::format("a row of {} has a token that is none", relation_));
    fence = Fence{*number, {}, std::nullopt, false};
    if (!names_.holder.empty()) fence->holder = Holder{row.values.at(names_.holder).value_or("")};
  }
  return {std::move(row), std::move(fence)};
}

// What becomes of the claim, and whether the row's token rises.
std::pair<RowVerdict, bool> VersionedTable::judge(const Present& present, const Claim& claim) const {
  auto given = claim.without_sequence();
  if (names_.holder.empty()) given.holder = Holder{};
  const auto ruling = fenceguard::judge({present.fence, 0}, given);
  if (ruling.verdict == Verdict::stale) return {RowVerdict::stale, false};
  if (ruling.verdict == Verdict::conflict) return {RowVerdict::conflict, false};
  return {RowVerdict::admitted, ruling.raised};
}

std::string VersionedTable::claim_columns(Connection& connection, const Claim& claim) const {
  auto text = fmt::format("t.{} = {}", column(names_.token).quoted, claim.token.value());
  if (!names_.holder.empty())
    text += fmt::format(", t.{} = {}", column(names_.holder).quoted, connection.quote(claim.holder.id()));
  return text;
}

std::optional<VersionedTable::Row> VersionedTable::read(Connection& connection, const Key& key) const {
  return mapped(Stage::before_commit, "reading a row", [&] { return present(connection, key, "").row; });
}

VersionedTable::Read VersionedTable::fenced_read(Connection& connection, const Claim& claim,
                                                 const Key& key) const {
  const auto doing = "reading a row of " + relation_;
  const bool is_callers = connection.is_in_transaction(doing);
  Read read;
  try {
    mapped(Stage::before_commit, doing, [&] {
      if (!is_callers) connection.run("START TRANSACTION");
      auto found = present(connection, key, " FOR UPDATE");
      if (!found.row) return;
      const auto [verdict, is_raised] = judge(found, claim);
      read.verdict = verdict;
      read.highest = found.fence ? found.fence->token.value() : 0;
      if (verdict != RowVerdict::admitted) return;
      // A commit that changes nothing writes nothing, and what is there may be of one whose end was not seen.
      if (!is_raised) {
        const auto& token = column(names_.token).quoted;
        connection.run(fmt::format("UPDATE {0} t SET t.{1} = t.{1} - 1 WHERE {2}", relation_, token,
                                   where(connection, key)));
      }
      connection.run(fmt::format("UPDATE {} t SET {} WHERE {}", relation_, claim_columns(connection, claim),
                                 where(connection, key)));
      found.row->values[names_.token] = to_string(claim.token);
      if (!names_.holder.empty()) found.row->values[names_.holder] = claim.holder.id();
      read.highest = claim.token.value();
      read.row = std::move(found.row);
    });
  } catch (...) {
    if (connection.is_open()) connection.roll_back();
    throw;
  }
  if (!is_callers) mapped(Stage::at_commit, doing, [&] { connection.commit(); });
  const bool is_refused = read.verdict == RowVerdict::stale || read.verdict == RowVerdict::conflict;
  if (is_callers && is_refused) mapped(Stage::before_commit, doing, [&] { connection.doom(); });
  return read;
}

VersionedTable::Update VersionedTable::update(Connection& connection, const Claim& claim, const Row& row,
                                              const Changes& changes) const {
  const auto doing = "writing a row of " + relation_;
  const bool is_callers = connection.is_in_transaction(doing);
  if (!is_callers && !connection.commits_by_itself())
    throw InvalidInput(doing +
                       ": autocommit is off and no transaction was begun: say START TRANSACTION first");
  const auto& version = column(names_.version).quoted;
  std::string set =
      is_version_a_time_
          ? fmt::format("t.{0} = GREATEST(UTC_TIMESTAMP(6), t.{0} + INTERVAL 1 MICROSECOND)", version)
          : fmt::format("t.{0} = t.{0} + 1", version);
  set += ", " + claim_columns(connection, claim);
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    const auto& name = change->first;
    const auto& quoted = column(name).quoted;
    if (name == names_.version || name == names_.token || name == names_.holder ||
        std::ranges::find(names_.key, name) != names_.key.end()) {
      throw InvalidInput(fmt::format("the column {} is part of the key or of the fence", name));
    }
    if (std::any_of(changes.begin(), change, [&](const auto& one) { return one.first == name; }))
      throw InvalidInput(fmt::format("the column {} is changed twice", name));
    set += fmt::format(", t.{} = {}", quoted, literal(connection, name, change->second));
  }
  // The rule: equal needs the same holder, greater advances, less is stale. Bytes, whatever the collation is.
  const auto& token = column(names_.token).quoted;
  const auto same_holder =
      names_.holder.empty() ? std::string{"TRUE"}
                            : fmt::format("CAST(COALESCE(t.{}, '') AS BINARY) = CAST({} AS BINARY)",
                                          column(names_.holder).quoted, connection.quote(claim.holder.id()));
  const auto condition =
      fmt::format("{} AND t.{} = {} AND ((t.{} = {} AND {}) OR COALESCE(t.{}, 0) < {})",
                  where(connection, row.key), version, literal(connection, names_.version, row.version),
                  token, claim.token.value(), same_holder, token, claim.token.value());
  try {
    connection.run(fmt::format("UPDATE {} t SET {} WHERE {}", relation_, set, condition));
  } catch (const ServerError& error) {
    if (is_no_value(error.number())) throw InvalidInput(fmt::format("{}: {}", doing, error.what()));
    // What a constraint or a trigger says is the caller's.
    if (error.state().starts_with("23") || error.number() == 4025 || error.number() == 3819 ||
        error.state().starts_with("ZF"))
      throw;
    raise_current(stage_in(is_callers), doing);
  } catch (...) {
    raise_current(stage_in(is_callers), doing);
  }
  // The version always changes, so a row that is matched is a row that is changed.
  if (connection.affected_rows() == 1) return {RowVerdict::admitted, {}, claim.token.value()};
  return mapped(Stage::before_commit, doing, [&]() -> Update {
    const auto found = present(connection, row.key, is_callers ? " FOR UPDATE" : " LOCK IN SHARE MODE");
    if (!found.row) return {};
    const auto highest = found.fence ? found.fence->token.value() : 0;
    const auto verdict = judge(found, claim).first;
    if (verdict != RowVerdict::admitted) {
      if (is_callers) connection.doom();
      return {verdict, {}, highest};
    }
    if (found.row->version == row.version)
      throw Unavailable(fmt::format("{}: it changed meanwhile, and back; try again", doing));
    return {RowVerdict::version_conflict, found.row->version, highest};
  });
}

}  // namespace fenceguard::mariadb
