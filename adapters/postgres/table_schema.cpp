#include "adapters/postgres/table_schema.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "guard/error.hpp"

namespace fenceguard::postgres {
namespace {

// PostgreSQL cuts a longer name without a word, and would then mean another one.
constexpr std::size_t name_bytes_max = 63;

struct Column {
  std::string type;
  bool is_not_null = false;
  bool is_generated = false;
};

void require_name(const std::string& name, std::string_view what) {
  if (name.empty()) throw InvalidInput(fmt::format("the {} has no name", what));
  if (name.size() > name_bytes_max || name.find('\0') != std::string::npos) {
    throw InvalidInput(
        fmt::format("the name of the {} has more than {} bytes, or a null among them", what, name_bytes_max));
  }
}

void require_names(const VersionedTableNames& names) {
  require_name(names.table, "table");
  if (!names.schema.empty()) require_name(names.schema, "schema");
  require_name(names.version, "version column");
  require_name(names.token, "token column");
  if (!names.holder.empty()) require_name(names.holder, "holder column");
  if (names.key.empty()) throw InvalidInput("the key has no columns: name those of a unique index");
  std::set<std::string> all{names.version, names.token};
  std::size_t count = 2 + names.key.size();
  if (!names.holder.empty()) all.insert(names.holder), ++count;
  for (const auto& column : names.key) {
    require_name(column, "key column");
    all.insert(column);
  }
  if (all.size() != count) throw InvalidInput("one column cannot be two of key, version, token and holder");
}

class Catalog {
 public:
  Catalog(pqxx::transaction_base& tx, const VersionedTableNames& names) : tx_{tx}, names_{names} {
    const auto found = tx.exec(
        fmt::format("SELECT c.oid, c.relkind, n.nspname FROM pg_catalog.pg_class c "
                    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = {0} AND "
                    "CASE WHEN {1} = '' THEN pg_catalog.pg_table_is_visible(c.oid) ELSE n.nspname = {1} END",
                    tx.quote(names.table), tx.quote(names.schema)));
    if (found.empty()) throw InvalidInput(fmt::format("there is no table {}", shown()));
    const std::string kind = found[0][1].c_str();
    if (kind != "r" && kind != "p") throw InvalidInput(fmt::format("{} is not a table", shown()));
    oid_ = found[0][0].c_str();
    relation_ = tx.quote_name(found[0][2].c_str()) + "." + tx.quote_name(names.table);
    for (const auto& row : tx.exec(fmt::format(
             "SELECT attname, pg_catalog.format_type(atttypid, atttypmod), attnotnull, attgenerated <> '' "
             "FROM pg_catalog.pg_attribute WHERE attrelid = {} AND attnum > 0 AND NOT attisdropped "
             "ORDER BY attnum",
             oid_))) {
      order_.emplace_back(row[0].c_str());
      columns_[order_.back()] = {row[1].c_str(), row[2].as<bool>(), row[3].as<bool>()};
    }
  }

  [[nodiscard]] const std::string& relation() const noexcept { return relation_; }
  [[nodiscard]] const std::vector<std::string>& columns() const noexcept { return order_; }

  [[nodiscard]] const Column& column(const std::string& name) const {
    const auto found = columns_.find(name);
    if (found == columns_.end()) throw InvalidInput(fmt::format("{} has no column {}", shown(), name));
    return found->second;
  }

  // The column, which must have one of the types and not be generated.
  const Column& require(const std::string& name, std::string_view what,
                        std::initializer_list<std::string_view> types) const {
    const Column& found = column(name);
    const bool fits = std::ranges::any_of(types, [&](auto type) {
      return found.type == type || (type == "character varying" && found.type.starts_with(type));
    });
    if (!fits) {
      throw InvalidInput(fmt::format("the {} column {} of {} is a {}, and must be a {}", what, name, shown(),
                                     found.type, fmt::join(types, " or ")));
    }
    if (found.is_generated) {
      throw InvalidInput(fmt::format("the {} column {} of {} is generated", what, name, shown()));
    }
    return found;
  }

  void require_unique_key() const {
    std::string list;
    for (const auto& name : names_.key) {
      (void)column(name);
      list += (list.empty() ? "" : ", ") + tx_.quote(name);
    }
    const auto found = tx_.exec(fmt::format(
        "SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = {} AND i.indisunique AND i.indisvalid "
        "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS ("
        "SELECT FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) n JOIN pg_catalog.pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n] WHERE a.attname NOT IN ({}))",
        oid_, list));
    if (found.empty()) {
      throw InvalidInput(fmt::format("no unique index of {} says that {} name one row", shown(),
                                     fmt::join(names_.key, ", ")));
    }
  }

  [[nodiscard]] std::string shown() const {
    return names_.schema.empty() ? names_.table : names_.schema + "." + names_.table;
  }

 private:
  pqxx::transaction_base& tx_;
  const VersionedTableNames& names_;
  std::string oid_;
  std::string relation_;
  std::vector<std::string> order_;
  std::map<std::string, Column> columns_;
};

}  // namespace

TableSchema check_table(pqxx::transaction_base& tx, const VersionedTableNames& names) {
  require_names(names);
  const Catalog catalog{tx, names};
  // A timestamp that is rounded to fewer digits could stand still.
  const Column& version = catalog.require(names.version, "version", {"bigint", "timestamp with time zone"});
  if (!version.is_not_null) {
    throw InvalidInput(fmt::format("the version column {} of {} may be null: alter it to NOT NULL",
                                   names.version, catalog.shown()));
  }
  catalog.require(names.token, "token", {"bigint"});
  if (!names.holder.empty()) catalog.require(names.holder, "holder", {"text", "character varying"});
  catalog.require_unique_key();
  TableSchema schema;
  schema.relation = catalog.relation();
  schema.columns = catalog.columns();
  schema.version = tx.quote_name(names.version);
  schema.token = tx.quote_name(names.token);
  if (!names.holder.empty()) schema.holder = tx.quote_name(names.holder);
  for (const auto& name : names.key) schema.key.push_back(tx.quote_name(name));
  for (const auto& name : schema.columns) schema.quoted.emplace(name, tx.quote_name(name));
  schema.is_version_a_time = version.type != "bigint";
  return schema;
}

}  // namespace fenceguard::postgres
