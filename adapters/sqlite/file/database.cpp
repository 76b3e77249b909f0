#include "adapters/sqlite/file/database.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <string>

#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr int busy_pause_us = 500;
constexpr int busy_tries_max = 20'000;  // ten seconds
// A reader may stay for as long as it likes, and the leases of callers that wait for this connection may not.
constexpr int truncate_tries_max = 200;
// At a time; the VFS of Unix takes fewer than 128 KiB.
constexpr std::int64_t rewrite_bytes = 64 * 1024;

std::string_view advice(int code) {
  // The first thing that a file needs on a full disk is room for the log's index.
  if (code == SQLITE_IOERR_SHMSIZE) code = SQLITE_FULL;
  switch (code & 0xFF) {
    case SQLITE_FULL:
      return "the disk is full: make room, then try again";
    case SQLITE_READONLY:
      return "the file cannot be written: check its owner, its mode and the mount";
    case SQLITE_CANTOPEN:
      return "the file cannot be opened: check that its folder exists and can be written";
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return "access was denied: check the owner and mode of the file";
    case SQLITE_CORRUPT:
      return "the file is damaged: stop, keep a copy, and restore a backup";
    case SQLITE_NOTADB:
      return "the file is not an SQLite database: check the path, or restore a backup";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "another process holds the file's lock: try again";
    case SQLITE_IOERR:
      return "reading or writing the disk failed: check the disk";
    default:
      return "";
  }
}

// The log's file and size; without methods where none is open.
int find_log(sqlite3* connection, sqlite3_file*& log, sqlite3_int64& size) {
  size = 0;
  const int code = sqlite3_file_control(connection, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  if (code != SQLITE_OK || log->pMethods == nullptr) return code;
  return log->pMethods->xFileSize(log, &size);
}

}  // namespace

void throw_error(sqlite3* connection, int code, std::string_view doing) {
  const auto hint = advice(code);
  throw Unavailable(fmt::format("{}: {}{}{}", doing,
                                connection != nullptr ? sqlite3_errmsg(connection) : sqlite3_errstr(code),
                                hint.empty() ? "" : "; ", hint));
}

void Statement::prepare() {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(connection_, sql_.data(), static_cast<int>(sql_.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  statement_.reset(statement);
  if (code != SQLITE_OK) throw_error(connection_, code, "preparing a statement");
}

void Statement::bind_at(int place, std::int64_t value) {
  sqlite3_bind_int64(statement_.get(), place, value);
}

void Statement::bind_at(int place, std::string_view value) {
  // An empty view may have no address, which SQLite would read as NULL.
  const char* text = value.empty() ? "" : value.data();
  sqlite3_bind_text64(statement_.get(), place, text, value.size(), SQLITE_STATIC, SQLITE_UTF8);
}

void Statement::bind_at(int place, Blob value) {
  const char* bytes = value.bytes.empty() ? "" : value.bytes.data();
  sqlite3_bind_blob64(statement_.get(), place, bytes, value.bytes.size(), SQLITE_STATIC);
}

void Statement::bind_at(int place, std::nullptr_t) {
  sqlite3_bind_null(statement_.get(), place);
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  const int reset_code = sqlite3_reset(statement_.get());
  if (code != SQLITE_DONE)
    throw_error(connection_, reset_code == SQLITE_OK ? code : reset_code, "running a statement");
  return false;
}

void Statement::run() {
  while (step()) {
  }
}

std::string_view Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return {bytes == nullptr ? "" : bytes,
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::string_view Statement::blob(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
  return {bytes == nullptr ? "" : bytes,
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

// Short pauses of equal length: SQLite's own handler backs off to 100 ms, and a connection that commits
// without a break would keep another one out for seconds.
int Database::wait_while_busy(void* self, int tries) {
  if (tries >= static_cast<Database*>(self)->busy_tries_max_) return 0;
  const timespec pause{0, busy_pause_us * 1000L};
  nanosleep(&pause, nullptr);
  return 1;
}

Database::Database(const std::string& path, Mode mode) : busy_tries_max_{busy_tries_max} {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_READWRITE;
  if (mode == Mode::create) flags |= SQLITE_OPEN_CREATE;
  sqlite3* connection = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &connection, flags, nullptr);
  connection_.reset(connection);
  const auto doing = fmt::format("opening {}", path);
  if (code != SQLITE_OK) throw_error(connection, code, doing);
  sqlite3_busy_handler(connection, wait_while_busy, this);
  try {
    execute(connection, mode == Mode::look ? "PRAGMA query_only = 1" : "PRAGMA journal_mode = WAL");
    execute(connection, "PRAGMA synchronous = FULL");
    execute(connection, "PRAGMA wal_autocheckpoint = 0");
    execute(connection, "SELECT count(*) FROM sqlite_schema");
    sqlite3_file* log = nullptr;
    sqlite3_int64 log_bytes = 0;
    if (find_log(connection, log, log_bytes) != SQLITE_OK || log_bytes > 0) copy_log_at_close(false);
    const auto note_pages = [](void* self, sqlite3*, const char*, int pages) {
      static_cast<Database*>(self)->log_pages_ = pages;
      return SQLITE_OK;
    };
    sqlite3_wal_hook(connection, note_pages, this);
    begin_.emplace(connection, "BEGIN IMMEDIATE");
    commit_.emplace(connection, "COMMIT");
  } catch (const Unavailable& error) {
    throw Unavailable(fmt::format("{}: {}", doing, error.what()));
  }
}

void execute(sqlite3* connection, const char* sql) {
  const int code = sqlite3_exec(connection, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK)
    throw_error(connection, code, fmt::format("running '{}'", std::string_view{sql}.substr(0, 40)));
}

bool has_table(sqlite3* connection, std::string_view name) {
  Statement query{connection, "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1"};
  return query.bind(name).step();
}

void rollback(sqlite3* connection) noexcept {
  if (sqlite3_get_autocommit(connection) == 0)
    sqlite3_exec(connection, "ROLLBACK", nullptr, nullptr, nullptr);
}

void rewrite_log(sqlite3* connection) {
  sqlite3_file* log = nullptr;
  sqlite3_int64 size = 0;
  int code = find_log(connection, log, size);
  std::string bytes;
  for (sqlite3_int64 at = 0; code == SQLITE_OK && at < size; at += rewrite_bytes) {
    bytes.resize(static_cast<std::size_t>(std::min<sqlite3_int64>(rewrite_bytes, size - at)));
    code = log->pMethods->xRead(log, bytes.data(), static_cast<int>(bytes.size()), at);
    if (code == SQLITE_OK)
      code = log->pMethods->xWrite(log, bytes.data(), static_cast<int>(bytes.size()), at);
  }
  if (code == SQLITE_OK && size > 0) code = log->pMethods->xSync(log, SQLITE_SYNC_FULL);
  if (code != SQLITE_OK) throw_error(nullptr, code, "rewriting the log");
}

CommitEnding Database::commit() {
  const int flushed = sqlite3_db_cacheflush(handle());
  // Busy: a page was in use and stays for COMMIT to write.
  if (flushed != SQLITE_OK && (flushed & 0xFF) != SQLITE_BUSY) {
    rollback(handle());
    throw_error(nullptr, flushed, "writing to the log before a commit");
  }
  commit_->bind();
  try {
    commit_->run();
    return CommitEnding::committed;
  } catch (const std::exception&) {
    const int code = sqlite3_extended_errcode(handle());
    rollback(handle());
    // Its last frame, which has no checksum then, was not written: a full disk says so at the write, and a
    // failed sync is another error.
    if ((code & 0xFF) == SQLITE_FULL) throw_error(nullptr, code, "writing the end of a commit");
    return CommitEnding::unknown;
  }
}

int Database::checkpoint() noexcept {
  return sqlite3_wal_checkpoint_v2(handle(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
}

void Database::copy_log_at_close(bool copies) noexcept {
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, copies ? 0 : 1, nullptr);
}

int Database::truncate_log() noexcept {
  busy_tries_max_ = truncate_tries_max;
  const int code = sqlite3_wal_checkpoint_v2(handle(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  busy_tries_max_ = busy_tries_max;
  return code;
}

}  // namespace fenceguard::sqlite
