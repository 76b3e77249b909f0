#pragma once

// A row of a user's own table that carries its version, token and holder beside its data: what the adapters'
// VersionedTable answers. Values.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fenceguard {

enum class RowVerdict {
  admitted,          // written, or read
  stale,             // a newer token was seen
  conflict,          // another holder uses the same number
  version_conflict,  // the row changed since it was read; the token is good
  not_found,         // there is no such row
};

[[nodiscard]] const char* to_string(RowVerdict verdict) noexcept;

struct VersionedRow {
  using Value = std::optional<std::string>;  // as text; nothing is null
  using Key = std::vector<Value>;            // in the order of the key's columns
  using Changes = std::vector<std::pair<std::string, Value>>;

  struct Read;
  struct Update;

  Key key;
  std::string version;
  std::map<std::string, Value> values;  // every column
};

struct VersionedRow::Read {
  RowVerdict verdict = RowVerdict::not_found;
  std::optional<VersionedRow> row{};  // if admitted
  std::int64_t highest = 0;           // the row's token; 0: none
};

struct VersionedRow::Update {
  RowVerdict verdict = RowVerdict::not_found;
  std::string version{};     // the present one at a version_conflict; PostgreSQL: the new one if admitted
  std::int64_t highest = 0;  // the row's token; 0: none
};

}  // namespace fenceguard
