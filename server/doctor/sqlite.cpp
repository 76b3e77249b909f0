#include "server/doctor/doctor.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "adapters/sqlite/fences/fence_table.hpp"
#include "adapters/sqlite/file/file.hpp"
#include "adapters/sqlite/file/inode_lock.hpp"
#include "adapters/sqlite/file/schema.hpp"
#include "adapters/sqlite/lock/lease_table.hpp"
#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

using Level = Finding::Level;
constexpr std::uint64_t free_bytes_wanted = 64ULL * 1024 * 1024;

Finding examine_place(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return {Level::danger, "file system", "it cannot be asked about"};
  constexpr long tmpfs = 0x01021994;
  if (info.f_type == tmpfs) return {Level::danger, "file system", "tmpfs: everything is gone after a reboot"};
  if (is_remote(path)) {
    return {Level::danger, "file system",
            "a network or FUSE file system: its locks and syncs cannot be relied on; use a local disk"};
  }
  return {Level::ok, "file system", "local"};
}

Finding examine_room(const std::string& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) return {Level::warning, "free space", "it cannot be asked about"};
  const std::uint64_t free_bytes = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  const auto level = free_bytes < free_bytes_wanted ? Level::warning : Level::ok;
  return {level, "free space", fmt::format("{} MiB", free_bytes / (1024 * 1024))};
}

Finding examine_version(sqlite3* connection) {
  const int version = installed_version(connection);
  const auto message = fmt::format("version {} of {}", version, schema_version());
  if (version > schema_version())
    return {Level::danger, "tables", message + ": made by a newer fenceguard; use that one"};
  if (version == 0) return {Level::danger, "tables", "none: run 'fenceguard fence init'"};
  if (version < schema_version())
    return {Level::warning, "tables", message + ": upgraded when it is next opened"};
  return {Level::ok, "tables", message};
}

Finding examine_journal(sqlite3* connection) {
  Statement query{connection, "PRAGMA journal_mode"};
  const std::string mode = query.bind().step() ? std::string{query.text(0)} : "";
  if (mode == "wal") return {Level::ok, "journal mode", "WAL, opened with synchronous=FULL"};
  return {Level::warning, "journal mode", mode + ": set to WAL when it is next opened"};
}

Finding examine_soundness(sqlite3* connection, const std::string& path) {
  try {
    require_sound(connection, path);
    return {Level::ok, "soundness", "no damage found"};
  } catch (const Unavailable& error) {
    return {Level::danger, "soundness", error.what()};
  }
}

Finding examine_namespace(sqlite3* connection) {
  const auto row = FenceTable{connection}.load_namespace();
  if (!row)
    return {Level::danger, "fences",
            "not initialised: everything is unavailable until 'fenceguard fence init'"};
  return {Level::ok, "fences",
          fmt::format("{} records, floor {}, highest token {}", row->resources, row->floor, row->highest)};
}

// Looks at what both roles of a file have in common, then at what look adds.
template <class Look>
Findings examine(const std::string& path, Look look) {
  require_present(path);
  Database database{path, Database::Mode::look};
  Findings findings{examine_place(path), examine_room(path), examine_version(database.handle()),
                    examine_journal(database.handle()), examine_soundness(database.handle(), path)};
  const bool is_readable = findings[2].level != Level::danger && findings[4].level != Level::danger;
  if (is_readable) {
    try {
      look(database.handle(), findings);
    } catch (const Unavailable& error) {
      findings.push_back({Level::danger, "content", error.what()});
    }
  }
  return findings;
}

}  // namespace

Findings examine_source(const Url& url) {
  return examine(path_of(url), [](sqlite3* connection, Findings& findings) {
    LeaseTable leases{connection};
    const std::int64_t last = leases.last_drawn();
    findings.push_back({Level::ok, "counter", fmt::format("last token drawn: {}", last)});
    const auto row = FenceTable{connection}.load_namespace();
    if (row && row->highest > last && last > 0) {
      findings.push_back(
          {Level::warning, "counter",
           fmt::format(
               "behind the fences of this file, which have seen {}: raised by itself at the next lease",
               row->highest)});
    }
  });
}

Findings examine_storage(const Url& url) {
  const auto path = path_of(url);
  return examine(path, [&path](sqlite3* connection, Findings& findings) {
    findings.push_back(examine_namespace(connection));
    findings.push_back({Level::ok, "guard", GuardLock::is_taken(path) ? "running" : "not running"});
  });
}

}  // namespace fenceguard::sqlite
