#pragma once

// VersionedTable: optimistic fencing with the user's own table alone. Each row carries its version, the
// highest token seen and, optionally, whose it is; the condition of the UPDATE is the check, so judge and
// write are one statement, one round trip (a refusal takes another, which tells why). The fences' database is
// not needed.
//
//   ALTER TABLE account ADD version BIGINT NOT NULL DEFAULT 0, ADD token BIGINT, ADD holder VARCHAR(128);
//
//   VersionedTable accounts{connection, {.database = "bank", .table = "account", .key = {"id"},
//                                        .version = "version", .token = "token", .holder = "holder"}};
//   auto seen = accounts.fenced_read(connection, claim, {"42"});     // a new holder's first read
//   auto done = accounts.update(connection, claim, *seen.row, {{"balance", "70"}});
//
// The row is the resource. What this way cannot do: without a holder column a conflict cannot be told (two
// holders of one number both write); there are no sequences, so a duplicate is a version_conflict at best;
// nothing can be closed; deleting a row forgets its fence, so the row that is inserted again admits any
// token; and an update of the table without this condition bypasses the fence.
//
// Holds at every isolation level: all that decides is read with a lock. Outside of a transaction each call is
// one of its own; in one of the caller's, a stale or conflicting claim leaves it as admit_in() does.
//
// Thread safety: const calls may be made from any thread, each on a connection of its own.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/mariadb/connection.hpp"
#include "guard/claim.hpp"
#include "guard/support/versioned_row.hpp"

namespace fenceguard::mariadb {

using fenceguard::RowVerdict;
using fenceguard::to_string;

// Names as they are in the catalog, unquoted.
struct VersionedTableNames {
  std::string database;
  std::string table;
  std::vector<std::string> key;  // columns of a unique index
  std::string version;           // an INT, a BIGINT or a DATETIME(6), NOT NULL
  std::string token;             // BIGINT; null: none yet
  std::string holder{};          // of 128 bytes at least; left out: a conflict cannot be told
};

class VersionedTable {
 public:
  using Value = VersionedRow::Value;  // as text; nothing is null
  using Key = VersionedRow::Key;      // in the order of the key's columns
  using Changes = VersionedRow::Changes;
  using Row = VersionedRow;
  using Read = VersionedRow::Read;
  using Update = VersionedRow::Update;

  // Checks the names against the catalog, once. Throws InvalidInput, with a sentence, for a table that is not
  // InnoDB, a column that is not there or has the wrong type (a DATETIME without its six digits, a TIMESTAMP,
  // which reads differently in each session), a key that is not unique, and a session without strict mode,
  // which would write something else than it is told; Unavailable where a commit is not durable at this
  // server.
  VersionedTable(Connection& connection, const VersionedTableNames& names);

  // A plain read. Nothing if there is no such row. Throws InvalidInput for what is no key; Unavailable.
  [[nodiscard]] std::optional<Row> read(Connection& connection, const Key& key) const;

  // Advances the row's fence and reads it, locked; waits until an older write to the row is over. A new
  // holder's first read. The version stays. Throws InvalidInput; Unavailable; OutcomeUnknown.
  [[nodiscard]] Read fenced_read(Connection& connection, const Claim& claim, const Key& key) const;

  // Writes the changes if the claim stands and the row still has the version that was read. The claim's
  // sequence is not looked at. Throws InvalidInput for a column that is not there or is not the caller's to
  // change, or a value that is no value of it; Unavailable; OutcomeUnknown (never repeated; read the row).
  // Constraints pass through as ServerError, and nothing was written.
  [[nodiscard]] Update update(Connection& connection, const Claim& claim, const Row& row,
                              const Changes& changes) const;

 private:
  struct Column {
    std::string quoted;
    bool is_number = false;
  };
  struct Present;

  void check(Connection& connection, const VersionedTableNames& names);
  [[nodiscard]] const Column& column(const std::string& name) const;
  [[nodiscard]] std::string literal(Connection& connection, const std::string& column,
                                    const Value& value) const;
  [[nodiscard]] std::string where(Connection& connection, const Key& key) const;
  [[nodiscard]] Present present(Connection& connection, const Key& key, const char* lock) const;
  [[nodiscard]] std::pair<RowVerdict, bool> judge(const Present& present, const Claim& claim) const;
  [[nodiscard]] std::string claim_columns(Connection& connection, const Claim& claim) const;

  VersionedTableNames names_;
  std::string relation_;  // `database`.`table`
  std::vector<std::string> order_;
  std::map<std::string, Column> columns_;
  bool is_version_a_time_ = false;
};

}  // namespace fenceguard::mariadb
