#include "adapters/sqlite/file/schema.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>

#include "guard/error.hpp"

namespace fenceguard::sqlite {

extern const std::string_view sql_001_fences;
extern const std::string_view sql_002_leases;
extern const std::string_view sql_003_objects;
extern const std::string_view sql_004_lane;
extern const std::string_view sql_005_depth;
extern const std::string_view sql_006_cut;

namespace {

std::array<std::string_view, 6> versions() {
  return {sql_001_fences, sql_002_leases, sql_003_objects, sql_004_lane, sql_005_depth, sql_006_cut};
}

// Whether each of our tables is defined as in a new file: a changed letter there can hide every row.
bool has_our_definitions(sqlite3* connection) {
  Database fresh{":memory:", Database::Mode::create};
  install(fresh.handle());
  Statement ours{fresh.handle(), "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"};
  Statement found{connection, "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1 AND sql = ?2"};
  ours.bind();
  while (ours.step()) {
    if (!found.bind(ours.text(0), ours.text(1)).step()) return false;
  }
  return true;
}

}  // namespace

int schema_version() noexcept {
  return static_cast<int>(versions().size());
}

int installed_version(sqlite3* connection) {
  if (!has_table(connection, "fenceguard_schema")) return 0;
  Statement query{connection, "SELECT version FROM fenceguard_schema WHERE id = 1"};
  if (!query.bind().step())
    throw Unavailable("the table fenceguard_schema is empty: the file is damaged; restore a backup");
  const auto version = query.integer(0);
  if (version < 1 || version > std::numeric_limits<int>::max()) {
    throw Unavailable(fmt::format(
        "the table fenceguard_schema names version {}: the file is damaged; restore a backup", version));
  }
  return static_cast<int>(version);
}

void install(sqlite3* connection) {
  const int before = installed_version(connection);
  if (before > schema_version()) {
    throw Unavailable(
        fmt::format("the database has fenceguard's tables in version {}, and this program knows versions up "
                    "to {}: use a newer fenceguard",
                    before, schema_version()));
  }
  if (before == schema_version()) return;
  execute(connection, "BEGIN IMMEDIATE");
  try {
    // Another process may have been faster.
    for (int version = installed_version(connection); version < schema_version(); ++version) {
      execute(connection, std::string{versions()[static_cast<std::size_t>(version)]}.c_str());
    }
    const auto mark = fmt::format(
        "INSERT INTO fenceguard_schema VALUES (1, {0}) ON CONFLICT (id) DO UPDATE SET version = {0}",
        schema_version());
    execute(connection, mark.c_str());
    // Nothing rests on this commit: the next process that opens the database looks at the version again.
    execute(connection, "COMMIT");
  } catch (...) {
    rollback(connection);
    throw;
  }
}

void keep_log(sqlite3* connection) {
  execute(connection, "BEGIN IMMEDIATE");
  try {
    rewrite_log(connection);
  } catch (...) {
    rollback(connection);
    throw;
  }
  rollback(connection);
}

void commit_no_change(sqlite3* connection) {
  try {
    execute(connection, "BEGIN IMMEDIATE");
    // To and fro, because SQLite does not write a page in which no byte was ever changed.
    execute(connection, "UPDATE fenceguard_schema SET version = version + 1");
    execute(connection, "UPDATE fenceguard_schema SET version = version - 1");
    execute(connection, "COMMIT");
  } catch (...) {
    rollback(connection);
    throw;
  }
}

void settle_log(sqlite3* connection) {
  keep_log(connection);
  commit_no_change(connection);
}

std::string install_sql() {
  std::string text = "BEGIN;\n\n";
  for (const auto sql : versions()) text += fmt::format("{}\n", sql);
  // The checksum of this row is not written by hand: 0 is replaced by the first process that opens the
  // database.
  text += fmt::format(
      "INSERT INTO fenceguard_schema VALUES (1, {});\n"
      "INSERT INTO fenceguard_namespace VALUES (1, 0, 0, 0, 0, lower(hex(randomblob(4))), 0);\n\nCOMMIT;\n",
      schema_version());
  return text;
}

void require_sound(sqlite3* connection, const std::string& path) {
  std::string finding;
  try {
    Statement check{connection, "PRAGMA quick_check(1)"};
    if (check.bind().step()) finding = check.text(0);
  } catch (const Unavailable& error) {
    finding = error.what();
  }
  const bool is_ours = finding == "ok" && installed_version(connection) == schema_version();
  if (is_ours && !has_our_definitions(connection))
    finding = "its tables are not defined as fenceguard defines them";
  if (finding == "ok") return;
  throw Unavailable(fmt::format(
      "{} is damaged ({}): keep a copy, restore a backup, then run 'fenceguard fence init'", path, finding));
}

Checksum& Checksum::add(std::string_view text) noexcept {
  for (const char c : text) {
    state_ ^= static_cast<unsigned char>(c);
    state_ *= 1099511628211ULL;
  }
  return add(static_cast<std::int64_t>(text.size()));  // so that 'ab','c' and 'a','bc' differ
}

Checksum& Checksum::add(std::int64_t number) noexcept {
  auto bits = static_cast<std::uint64_t>(number);
  for (int i = 0; i < 8; ++i, bits >>= 8) {
    state_ ^= bits & 0xFF;
    state_ *= 1099511628211ULL;
  }
  return *this;
}

}  // namespace fenceguard::sqlite
