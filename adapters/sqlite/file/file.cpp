#include "adapters/sqlite/file/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "adapters/sqlite/fences/closing_seal.hpp"
#include "adapters/sqlite/fences/fence_table.hpp"
#include "adapters/sqlite/file/schema.hpp"
#include "adapters/sqlite/objects/object_table.hpp"
#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

namespace fs = std::filesystem;

// Files up to this size are read in whole for damage at the start; larger ones row by row, as they are used.
constexpr std::uintmax_t check_bytes_max = 64ULL * 1024 * 1024;

// Between two looks at a lock that is held elsewhere.
constexpr std::chrono::milliseconds lock_look{10};

std::string reason() {
  return std::generic_category().message(errno);
}

void sync_path(const std::string& path, int flags) {
  const Descriptor file{open(path.c_str(), flags | O_CLOEXEC)};
  if (file.number() < 0) throw Unavailable(fmt::format("cannot open {}: {}", path, reason()));
  if (fsync(file.number()) != 0) throw Unavailable(fmt::format("cannot sync {}: {}", path, reason()));
}

void remove_with_log(const std::string& path) noexcept {
  for (const char* suffix : {"", "-wal", "-shm"}) unlink((path + suffix).c_str());
}

std::string folder_of(const std::string& path) {
  const auto folder = fs::path{path}.parent_path();
  return folder.empty() ? "." : folder.string();
}

// Where another process was faster, its file stays (EEXIST).
bool move_unless_there(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  // A file system that cannot do that.
  return (errno == EINVAL || errno == ENOSYS) && link(from.c_str(), to.c_str()) == 0;
}

// SQLite would apply the log of a file that is gone to the new one. Another process may create the file just
// now: its log comes after it.
void require_no_log(const std::string& path) {
  for (const char* suffix : {"-wal", "-journal"}) {
    const auto log = path + suffix;
    if (!fs::exists(log) || fs::exists(path)) continue;
    throw Unavailable(
        fmt::format("{} does not exist, but its log {} does: the file was moved or deleted without it; put "
                    "the file back, or delete {} to begin with nothing",
                    path, log, log));
  }
}

void create(const std::string& path) {
  require_no_log(path);
  const std::string draft = path + ".new-" + Holder::random().id();
  try {
    {
      Database database{draft, Database::Mode::create};
      install(database.handle());
      // Closing would do it as well, but not report that it failed.
      const int code = database.truncate_log();
      if (code != SQLITE_OK) throw_error(database.handle(), code, "checkpointing");
    }
    sync_path(draft, O_RDONLY);
    if (!move_unless_there(draft, path) && errno != EEXIST) {
      throw Unavailable(fmt::format("cannot create {}: {}", path, reason()));
    }
    sync_path(folder_of(path), O_RDONLY | O_DIRECTORY);
  } catch (const Unavailable& error) {
    remove_with_log(draft);
    throw Unavailable(fmt::format("cannot create {}: {}", path, error.what()));
  }
  remove_with_log(draft);
}

// SQLite's log goes by the database's name: what was committed by one of two names, and was not copied into
// the file before a crash, is not found by the other.
void require_one_name(const std::string& path) {
  struct statx found {};
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_NLINK, &found) != 0) return;
  if (found.stx_nlink > 1) {
    throw Unavailable(
        fmt::format("{} has {} names (hard links), and SQLite keeps a log beside each: find them with 'find "
                    "-samefile {}', stop what uses them, and delete all but the one with the '-wal' file",
                    path, found.stx_nlink, path));
  }
  if ((found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
    throw Unavailable(fmt::format(
        "{} is mounted alone, and SQLite keeps its log beside that name, where others who use the "
        "file do not find it: mount its folder instead",
        path));
  }
}

// Looks without opening: see GuardLock on descriptors of a database.
void require_usable(const std::string& path) {
  require_one_name(path);
  if (fs::file_size(path) <= 1) {  // one byte counts as none to SQLite, which would begin with nothing
    throw Unavailable(
        fmt::format("{} is empty: it was truncated, or made by hand; restore a backup, or delete it to "
                    "begin with nothing",
                    path));
  }
  if (access(path.c_str(), R_OK | W_OK) != 0 || access(folder_of(path).c_str(), W_OK) != 0) {
    throw Unavailable(
        fmt::format("{} or its folder cannot be written ({}): check owner, mode and mount", path, reason()));
  }
}

void require_undamaged(Database& database, const std::string& path) {
  if (fs::file_size(path) > check_bytes_max) return;
  require_sound(database.handle(), path);
  execute(database.handle(), "BEGIN");  // one snapshot, because a guard may be running
  FenceTable fences{database.handle()};
  const auto row = fences.load_namespace();
  std::size_t found = 0;
  FenceListing listing{"", "", 10'000};
  std::string last;
  for (bool has_more = true; has_more;) {
    const auto page = fences.list(listing);
    found += page.entries.size();
    for (const auto& entry : page.entries) {
      // What is not where it belongs would be listed, but not found.
      if (entry.resource.name() <= last)
        throw Unavailable(fmt::format("{} is damaged (its fences are out of order): restore a backup", path));
      last = entry.resource.name();
    }
    has_more = page.has_more;
    if (has_more) listing.after = page.entries.back().resource.name();
  }
  if (row && static_cast<std::size_t>(row->resources) != found) {
    throw Unavailable(fmt::format(
        "{} is damaged ({} fences are there, and there were {}): keep a copy, restore a backup, then run "
        "'fenceguard fence init'",
        path, found, row->resources));
  }
  ObjectTable{database.handle()}.verify();
  rollback(database.handle());
}

// Next to the file itself, wherever path leads: SQLite follows links, so one database must have one lock.
std::string lock_path(const std::string& path) {
  std::error_code error;
  const auto real = fs::canonical(path, error);
  return (error ? path : real.string()) + "-guard";
}

}  // namespace

std::string path_of(const Url& url) {
  url.require_known_parameters({});
  if (!url.authority.empty() || !url.user.empty()) {
    throw InvalidInput(
        "an sqlite: URL is sqlite:PATH, such as sqlite:fenceguard.db or sqlite:/var/lib/app/fences.db");
  }
  if (url.path.empty()) throw InvalidInput("an sqlite: URL needs a path: sqlite:fenceguard.db");
  return url.path;
}

// A relative path leads a process in another working directory to another file, with other leases and other
// tokens.
void require_present(const std::string& path) {
  std::error_code error;
  if (fs::status(path, error).type() != fs::file_type::not_found) return;
  const fs::path asked{path};
  throw Unavailable(fmt::format(
      "{} does not exist{}: give the path of the file that all others use; one that is new is created by "
      "'fenceguard serve', by 'fence init --storage', or by --init of 'exec' and 'lease acquire'",
      fs::absolute(asked).lexically_normal().string(),
      asked.is_relative() ? " (looked for from the working directory)" : ""));
}

void prepare_file(const std::string& path, Missing missing, std::chrono::milliseconds lock_wait) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    if (missing == Missing::refuse) require_present(path);
    create(path);
    return;
  }
  if (status.type() != fs::file_type::regular) {
    throw Unavailable(
        fmt::format("{} is not a file{}{}", path, error ? ": " : "", error ? error.message() : ""));
  }
  require_usable(path);
  ClosingSeal{path}.remove_if_moved();
  try {
    Database database{path, Database::Mode::read_write};
    if (installed_version(database.handle()) != schema_version()) {
      // A running guard of another version keeps its tables.
      const GuardLock nobody{path, GuardLock::Kind::guard, lock_wait};
      install(database.handle());
    }
    require_undamaged(database, path);
  } catch (const Unavailable& fault) {
    const std::string what = fault.what();
    if (what.find(path) != std::string::npos) throw;
    throw Unavailable(fmt::format("{}: {}", path, what));
  }
}

GuardLock::GuardLock(const std::string& path, Kind kind, std::chrono::milliseconds wait)
    : descriptor_{open(lock_path(path).c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0644)} {
  if (descriptor_.number() < 0) {
    throw Unavailable(fmt::format("cannot open {}-guard ({}): check owner, mode and mount", path, reason()));
  }
  require_one_name(path);
  if (kind == Kind::transaction) wait = {};
  const auto last = std::chrono::steady_clock::now() + wait;
  while (!take(path, kind)) {
    if (std::chrono::steady_clock::now() < last) {
      std::this_thread::sleep_for(lock_look);
      continue;
    }
    throw Unavailable(fmt::format(
        "another fenceguard is the guard of {}{}: ask that one (--server http://HOST:PORT), or stop it first",
        path, wait.count() > 0 ? fmt::format(", and was after {} ms of waiting", wait.count()) : ""));
  }
}

bool GuardLock::take(const std::string& path, Kind kind) {
  const bool is_guard = kind == Kind::guard;
  if (flock(descriptor_.number(), (is_guard ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) return false;
  return inode_.try_lock(path, is_guard ? InodeLock::Mode::exclusive : InodeLock::Mode::shared);
}

bool GuardLock::is_taken(const std::string& path) {
  const Descriptor descriptor{open(lock_path(path).c_str(), O_RDONLY | O_CLOEXEC)};
  if (descriptor.number() >= 0 && flock(descriptor.number(), LOCK_SH | LOCK_NB) != 0) return true;
  InodeLock probe;
  return !probe.try_lock(path, InodeLock::Mode::shared);
}

}  // namespace fenceguard::sqlite
