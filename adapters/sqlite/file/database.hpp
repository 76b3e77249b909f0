#pragma once

// Database and Statement: RAII over the C interface of SQLite, and the one place where its result codes
// become our faults. Errors of a statement inside a transaction are Unavailable: nothing was committed. An
// error of COMMIT is not: see commit().
//
// Not thread-safe: one connection, one thread at a time.

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fenceguard::sqlite {

// Throws what code means: Unavailable, with what was being done and what SQLite says of it.
[[noreturn]] void throw_error(sqlite3* connection, int code, std::string_view doing);

// Bytes to be stored as they are, not as text.
struct Blob {
  std::string_view bytes;
};

// A statement that is prepared when it is first bound, and used again and again.
class Statement {
 public:
  // REQUIRES: sql stays alive; it is meant to be a literal.
  Statement(sqlite3* connection, std::string_view sql) : connection_{connection}, sql_{sql} {}

  // Binds the values to ?1, ?2, … A string_view must stay alive until the next reset().
  template <class... Values>
  Statement& bind(const Values&... values) {
    if (statement_) {
      reset();
    } else {
      prepare();
    }
    int place = 0;
    (bind_at(++place, values), ...);
    return *this;
  }

  // One step: true if there is a row. After the last row, and after an error, the statement is reset by
  // itself.
  bool step();
  // Steps to the end. For statements without rows.
  void run();
  void reset() noexcept { sqlite3_reset(statement_.get()); }

  [[nodiscard]] std::int64_t integer(int column) const {
    return sqlite3_column_int64(statement_.get(), column);
  }
  [[nodiscard]] bool is_null(int column) const {
    return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
  }
  [[nodiscard]] bool is_text(int column) const {
    return sqlite3_column_type(statement_.get(), column) == SQLITE_TEXT;
  }
  // Alive until the next step or reset.
  [[nodiscard]] std::string_view text(int column) const;
  [[nodiscard]] std::string_view blob(int column) const;

 private:
  void prepare();
  void bind_at(int place, std::int64_t value);
  void bind_at(int place, std::string_view value);
  void bind_at(int place, Blob value);
  void bind_at(int place, std::nullptr_t);

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
  };
  sqlite3* connection_;
  std::string_view sql_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// Resets a statement when the scope ends, however it ends: one that stays in the middle of its rows keeps the
// connection on an old snapshot.
class ResetAtEnd {
 public:
  explicit ResetAtEnd(Statement& statement) : statement_{statement} {}
  ~ResetAtEnd() { statement_.reset(); }
  ResetAtEnd(const ResetAtEnd&) = delete;
  ResetAtEnd& operator=(const ResetAtEnd&) = delete;

 private:
  Statement& statement_;
};

// Runs SQL that answers nothing.
void execute(sqlite3* connection, const char* sql);
[[nodiscard]] bool has_table(sqlite3* connection, std::string_view name);
// Ends a transaction as best it can, if one is open; never throws.
void rollback(sqlite3* connection) noexcept;

// Writes the log again, byte for byte, and syncs it: what a failed sync, of whichever process, has left in
// the kernel's memory only, no later sync brings to the disk, and what is committed behind it would be lost
// with the power. Takes no room. Throws Unavailable. REQUIRES: a write transaction is open.
void rewrite_log(sqlite3* connection);

// How a commit ended that did not throw Unavailable.
enum class CommitEnding { committed, unknown };

class Database {
 public:
  enum class Mode { read_write, create, look };  // look: changes nothing
  // Opens with WAL and synchronous=FULL, waiting up to ten seconds for other processes' locks. Throws
  // Unavailable with a sentence that says what to do.
  Database(const std::string& path, Mode mode);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] sqlite3* handle() const noexcept { return connection_.get(); }

  void begin() { begin_->bind().run(); }
  // Pages go to the log first, so that a full disk shows before the commit is begun and is certainly nothing
  // (Unavailable, rolled back). What fails in COMMIT itself is unknown: SQLite can answer it with an I/O
  // error and have committed.
  [[nodiscard]] CommitEnding commit();

  // Copies the log into the file, as far as readers of older states let it, and syncs the file. Does not
  // wait. Answers SQLite's result code; busy: another connection is at it.
  [[nodiscard]] int checkpoint() noexcept;
  // The same, and empties the log if readers and writers leave it within a tenth of a second.
  int truncate_log() noexcept;
  // Whether the last connection of the file copies the log into it when it closes, and deletes the log. One
  // that found a log does not, until this is called: see keep_log().
  void copy_log_at_close(bool copies) noexcept;
  // Pages in the log after the last commit of this connection.
  [[nodiscard]] int log_pages() const noexcept { return log_pages_; }

 private:
  struct Close {
    void operator()(sqlite3* connection) const noexcept { sqlite3_close_v2(connection); }
  };
  static int wait_while_busy(void* self, int tries);

  int busy_tries_max_;
  int log_pages_ = 0;
  std::unique_ptr<sqlite3, Close> connection_;
  // Kept, because reading the words of a transaction anew takes longer than carrying them out.
  std::optional<Statement> begin_;
  std::optional<Statement> commit_;
};

}  // namespace fenceguard::sqlite
