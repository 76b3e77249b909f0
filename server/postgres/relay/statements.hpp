#pragma once

// Statements: what a text of SQL would do to transactions, by the first words of its statements as
// PostgreSQL's own scanner (libpg-query) finds them. Nothing else of SQL is looked at.
//
// Thread-safe.

#include <cstdint>
#include <string>
#include <string_view>

namespace fenceguard::pgwire {

enum class Kind : std::uint8_t {
  ordinary,
  passive,          // SHOW, SET, RESET: writes nothing, and takes no snapshot
  discard,          // DISCARD ALL, which stands alone
  begin,            // BEGIN, START TRANSACTION
  set_transaction,  // what still may come before the first statement of a transaction
  end,              // COMMIT, END, ROLLBACK, ABORT
  chain,            // the same, AND CHAIN
  rollback_to,      // ROLLBACK TO a savepoint, whose tag is that of a ROLLBACK
  call,             // CALL, DO: may end transactions where there is no block
  refused,          // see Statements::why
};

// Of these the text of a prepared statement is kept.
[[nodiscard]] constexpr bool keeps_text(Kind kind) noexcept {
  return kind != Kind::ordinary && kind != Kind::call && kind != Kind::rollback_to;
}
[[nodiscard]] constexpr bool is_transaction_control(Kind kind) noexcept {
  return kind == Kind::begin || kind == Kind::end || kind == Kind::chain;
}

// Between two statements of a text: in bytes, and how many statements are in front of it.
struct Place {
  std::size_t at = 0, statements = 0;
};

struct Statements {
  std::size_t count = 0;       // that are not empty
  Kind kind = Kind::ordinary;  // of the only one, or the first
  Kind last = Kind::ordinary;  // of the only one, or the last
  bool has_control = false;    // one of them begins or ends a transaction
  bool has_inner_control =
      false;  // one that is not the first begins a transaction, or one that is not the last ends one
  bool is_preamble = false;  // a BEGIN is the first, and nothing follows that needs to be in its transaction
  Place behind_begin{};      // that is the first of several; else the beginning
  Place behind_preamble{};   // and behind the SET, SET TRANSACTION and SHOW that follow it
  std::size_t rollbacks_to = 0;  // so many of them are of that kind
  bool says_read_only = false,
       says_read_write = false;  // in a begin or the leading set_transactions, the last
  bool is_broken = false;        // the scanner does not get through: the server would not either
  const char* why = nullptr;     // a sentence, where one is refused
};

[[nodiscard]] Statements classify_statements(const std::string& text);

}  // namespace fenceguard::pgwire
