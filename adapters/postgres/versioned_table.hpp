#pragma once

// VersionedTable: optimistic fencing with the user's own table alone. Each row carries its version, the
// highest token seen and, optionally, whose it is; the condition of the UPDATE is the check, so judge and
// write are one statement, one round trip (a refusal takes another, which tells why). The schema fenceguard
// is not needed.
//
//   ALTER TABLE account ADD version bigint NOT NULL DEFAULT 0, ADD token bigint, ADD holder text;
//
//   VersionedTable accounts{connection, {.table = "account", .key = {"id"}, .version = "version",
//                                        .token = "token", .holder = "holder"}};
//   auto seen = accounts.fenced_read(connection, claim, {"42"});     // a new holder's first read
//   auto done = accounts.update(connection, claim, *seen.row, {{"balance", "70"}});
//
// The row is the resource. What this way cannot do: without a holder column a conflict cannot be told (two
// holders of one number both write); there are no sequences, so a duplicate is a version_conflict at best;
// nothing can be closed; deleting a row forgets its fence, so the row that is inserted again admits any
// token; and an update of the table without this condition bypasses the fence.
//
// Holds in READ COMMITTED and above; above it, a row that changed after the transaction's snapshot is
// Unavailable (try again). Where the row's token rises, the transaction commits with at least
// synchronous_commit = on; in one of the caller's do not set it lower afterwards.
//
// Thread safety: const calls may be made from any thread, each on a connection of its own.

#include <cstdint>
#include <map>
#include <optional>
#include <pqxx/pqxx>
#include <string>
#include <utility>
#include <vector>

#include "adapters/postgres/table_schema.hpp"
#include "guard/claim.hpp"
#include "guard/support/versioned_row.hpp"

namespace fenceguard::postgres {

using fenceguard::RowVerdict;
using fenceguard::to_string;

class VersionedTable {
 public:
  using Value = VersionedRow::Value;  // as text; nothing is null
  using Key = VersionedRow::Key;      // in the order of the key's columns
  using Changes = VersionedRow::Changes;
  using Row = VersionedRow;
  using Read = VersionedRow::Read;
  using Update = VersionedRow::Update;

  // Checks the names against the catalog, once. Throws InvalidInput, with a sentence, for a table or column
  // that is not there or has the wrong type, and a key that is not unique; Unavailable.
  VersionedTable(pqxx::connection& connection, const VersionedTableNames& names);

  // A plain read. Nothing if there is no such row. Throws InvalidInput for a null in the key; Unavailable.
  [[nodiscard]] std::optional<Row> read(pqxx::connection& connection, const Key& key) const;
  [[nodiscard]] std::optional<Row> read(pqxx::transaction_base& tx, const Key& key) const;

  // Advances the row's fence and reads it, in one statement; waits until an older write to the row is over. A
  // new holder's first read. The version stays. Throws InvalidInput; Unavailable; OutcomeUnknown.
  [[nodiscard]] Read fenced_read(pqxx::connection& connection, const Claim& claim, const Key& key) const;
  [[nodiscard]] Read fenced_read(pqxx::transaction_base& tx, const Claim& claim, const Key& key) const;

  // Writes the changes if the claim stands and the row still has the version that was read. The claim's
  // sequence is not looked at. In a transaction a stale or conflicting claim dooms it, as admit_in() does.
  // Throws InvalidInput for a column that is not there or is not the caller's to change, or a value that is
  // no value of it; Unavailable; OutcomeUnknown (never repeated; read the row). Constraints pass through.
  [[nodiscard]] Update update(pqxx::connection& connection, const Claim& claim, const Row& row,
                              const Changes& changes) const;
  [[nodiscard]] Update update(pqxx::transaction_base& tx, const Claim& claim, const Row& row,
                              const Changes& changes) const;

 private:
  class Statement;
  [[nodiscard]] Row row_of(const Key& key, const pqxx::row& found, int version) const;
  void require_changes(const Changes& changes) const;

  TableSchema schema_;
};

}  // namespace fenceguard::postgres
