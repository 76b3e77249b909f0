#pragma once

// The tables in a database: installing, upgrading, refusing what is newer or damaged. The SQL itself is in
// sql/sqlite, one file per version, and is embedded as it stands there.
//
// Thread safety: that of the connection.

#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/sqlite/file/database.hpp"

namespace fenceguard::sqlite {

// The version that this build writes: the number of files in sql/sqlite.
[[nodiscard]] int schema_version() noexcept;

// The version found in the database; 0 if the tables are not there.
[[nodiscard]] int installed_version(sqlite3* connection);

// Brings the tables to schema_version() in one transaction of its own. Throws Unavailable if they are newer.
void install(sqlite3* connection);

// Before anything of a log that another process left is copied into the file: writes it again and syncs it.
// What is in force may be in the kernel's memory only, if the log was read anew from there, and a crash would
// bring back an older log, over a part of what was copied. Throws Unavailable. REQUIRES: no transaction is
// open. Cost: that of writing the log's bytes.
void keep_log(sqlite3* connection);

// Commits and syncs a transaction that changes nothing and yet is written: it takes the place of what is not
// in force and yet may be on the disk, where a crash would turn it round. Throws Unavailable. REQUIRES: the
// tables are there, no transaction is open, synchronous is at least FULL.
void commit_no_change(sqlite3* connection);

// Both, which settles what failed syncs, of this process or of one before it, have left in the log.
void settle_log(sqlite3* connection);

// All the SQL for a service's own database: 'fenceguard sql sqlite'. Can be run once; later versions upgrade
// when the library opens the database.
[[nodiscard]] std::string install_sql();

// Looks for damage. Throws Unavailable with a sentence that says what to do. Cost: reads the whole file.
void require_sound(sqlite3* connection, const std::string& path);

// FNV-1a, 64 bits: the checksums of rows. Against flipped bits, not against forgery.
class Checksum {
 public:
  Checksum& add(std::string_view text) noexcept;
  Checksum& add(std::int64_t number) noexcept;
  [[nodiscard]] std::int64_t value() const noexcept { return static_cast<std::int64_t>(state_); }

 private:
  std::uint64_t state_ = 14695981039346656037ULL;
};

}  // namespace fenceguard::sqlite
