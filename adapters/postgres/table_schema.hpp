#pragma once

// TableSchema: a user's table as the catalog describes it, checked once for what a VersionedTable needs, with
// every name quoted for use in SQL.
//
// Values; safe to copy and to use from any thread.

#include <map>
#include <pqxx/pqxx>
#include <string>
#include <vector>

namespace fenceguard::postgres {

// Names as they are in the catalog, unquoted.
struct VersionedTableNames {
  std::string schema{};  // left out: found by the search_path, once
  std::string table;
  std::vector<std::string> key;  // columns of a unique index
  std::string version;           // bigint or timestamp with time zone, NOT NULL
  std::string token;             // bigint; null: none yet
  std::string holder{};          // text; left out: a conflict cannot be told
};

struct TableSchema {
  std::string relation;                       // "schema"."table"
  std::vector<std::string> columns;           // all of them, unquoted, in the table's order
  std::string version, token;                 // quoted
  std::string holder{};                       // quoted; empty: none
  std::vector<std::string> key;               // quoted
  std::map<std::string, std::string> quoted;  // every column
  bool is_version_a_time = false;
};

// Throws InvalidInput with a sentence for what is not there or has the wrong type.
[[nodiscard]] TableSchema check_table(pqxx::transaction_base& tx, const VersionedTableNames& names);

}  // namespace fenceguard::postgres
