#pragma once

// Connection: a session of a MariaDB or MySQL server, over libmariadb's C interface: its own, or one that
// the caller has opened. It never reconnects: a session that is gone is gone with its transaction.
//
// Thread safety: one thread at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/mariadb/address.hpp"

struct st_mysql;  // MYSQL of mysql.h

namespace fenceguard::mariadb {

// As text; nothing is null.
using Row = std::vector<std::optional<std::string>>;
using Rows = std::vector<Row>;

class Connection {
 public:
  // Connects, with autocommit on and its text in UTF-8. Throws Unavailable with a sentence that never holds
  // the password.
  explicit Connection(const Address& address);
  // Uses a connection of the caller's, whose character set is utf8mb4 (else InvalidInput). schema: the
  // database of the fences. same: where a second session is opened if one is needed (see AdmitOptions::cut);
  // nothing: none is. REQUIRES: it outlives this.
  explicit Connection(st_mysql* borrowed, std::string schema = "fenceguard",
                      std::optional<Address> same = std::nullopt);

  // The rows of one statement; of one with several results, of the first that has any. Throws
  // ServerError where the server answered with an error, and ConnectionLost (errors.hpp).
  Rows run(std::string_view sql);

  // After a refusal: rolls back, and begins a transaction that only reads. A statement that commits by itself
  // (DDL, TRUNCATE, LOCK TABLES) would end that, and what follows be written: until COMMIT, ROLLBACK, BEGIN
  // or START TRANSACTION run() sends SELECT and SHOW alone, and throws ServerError (1792) for all else.
  void doom();
  // The same where the server has done so already.
  void send_reads_only() noexcept { is_doomed_ = true; }
  // Where it is admitted after all.
  void send_everything() noexcept { is_doomed_ = false; }

  // A text as a literal of SQL.
  [[nodiscard]] std::string quote(std::string_view text) const;
  // The same for the n-th '?' of a statement without other question marks: '?' in it is no parameter where
  // arguments are left out. Numbers go as text, too.
  Rows run(std::string_view sql, const Row& arguments);

  // 'CALL schema.procedure(arguments)'. Throws InvalidInput for a text that is not UTF-8; nothing was sent.
  Rows call(std::string_view procedure, const Row& arguments = {});

  // Of the open transaction alone: a session whose completion_type is CHAIN would begin another one with it.
  void commit() { run("COMMIT AND NO CHAIN NO RELEASE"); }
  void roll_back() { run("ROLLBACK AND NO CHAIN NO RELEASE"); }

  // Whether all that was sent since watch_transaction() left the open transaction as it was, so that an end
  // of the session takes all of it along. False where that is not certain: after a statement that may commit
  // or roll back (anything but plain reads, writes and savepoints), one that followed an error, which may
  // have ended the transaction, or where others have the handle and what they sent was not seen.
  [[nodiscard]] bool is_transaction_whole() const noexcept { return is_whole_ && !is_shared_; }
  void watch_transaction() noexcept { is_whole_ = true; }

  // Ends another session, by its number (KILL); what is open in it is rolled back. It may be over before.
  void end_session(const std::string& number);

  // Of the last statement: the rows that it changed.
  [[nodiscard]] std::uint64_t affected_rows() const noexcept { return affected_rows_; }
  // As the server said with its last answer. An error tells nothing of it, and may have ended the transaction
  // (a deadlock, or a statement that commits before it fails): after one, also of another user of the handle,
  // the server is asked. Throws ServerError and ConnectionLost where that fails.
  [[nodiscard]] bool is_in_transaction();
  // The same before doing, with that failure as one of our errors: nothing of it was sent.
  [[nodiscard]] bool is_in_transaction(std::string_view doing);
  // Autocommit is on.
  [[nodiscard]] bool commits_by_itself() const;
  // False once it was lost.
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }

  [[nodiscard]] const std::string& schema() const noexcept { return schema_; }
  // Null: it was borrowed without one.
  [[nodiscard]] const Address* address() const noexcept { return address_ ? &*address_ : nullptr; }
  // The server's number of this session.
  [[nodiscard]] std::uint64_t id() const noexcept;
  // For calls of the library's own.
  [[nodiscard]] st_mysql* handle() noexcept {
    is_shared_ = true;
    return handle_.get();
  }

 private:
  [[noreturn]] void raise_failure();
  Rows send(std::string_view sql);
  Rows send_and_read(std::string_view sql);
  [[nodiscard]] unsigned server_status() const;

  std::string schema_;
  std::optional<Address> address_;
  std::unique_ptr<st_mysql, void (*)(st_mysql*)> handle_;
  bool is_open_ = true;
  bool is_doomed_ = false;
  bool is_shared_ = false;   // the handle is known to others
  bool is_whole_ = false;    // see is_transaction_whole()
  bool is_answered_ = true;  // the last answer was no error, and told whether a transaction is open
  std::uint64_t affected_rows_ = 0;
};

}  // namespace fenceguard::mariadb
