#pragma once

// Errors: the one place where what libpqxx throws becomes one of our three endings. A claim that is refused
// is no error; it comes back as a row.
//
// Pure; thread-safe.

#include <string_view>

namespace fenceguard::postgres {

// What was going on when the error came, which decides what a lost connection means.
enum class Stage {
  before_commit,  // in a transaction whose COMMIT was not sent: nothing took effect
  at_commit,      // COMMIT was sent: a lost connection tells nothing
  statement,      // one statement that commits by itself: likewise
};

// Throws the Error that stands for the exception now being handled; one of ours passes as it is. what it was
// doing begins the message: 'advancing accounts/42'. Of what the server said, the first line and the hint are
// kept; its DETAIL may hold a payload. REQUIRES: called inside a catch block.
[[noreturn]] void raise_current(Stage stage, std::string_view doing);

// For a statement of the caller's own, or a COMMIT: throws as raise_current() where the moment or the
// connection is to blame, and lets pass what only the caller can make sense of, such as a constraint. Nothing
// took effect then. REQUIRES: called inside a catch block.
[[noreturn]] void raise_or_pass(Stage stage, std::string_view doing);

// True if the server itself answered with this SQLSTATE and that proves a rollback: false where it may have
// committed before (it is going down, or failed to write).
[[nodiscard]] bool is_rolled_back(std::string_view state) noexcept;

// True if the server ended the session with this SQLSTATE, so that what was open and had no COMMIT under way
// is rolled back.
[[nodiscard]] bool is_session_end(std::string_view state) noexcept;

// True if that rollback had to do with the moment, not with the statement: locks, time limits, conflicts with
// other transactions, a lack of resources, fences that are not installed.
[[nodiscard]] bool is_passing(std::string_view state) noexcept;

// The SQLSTATE of the exception now being handled; empty if it has none. libpqxx 6.4 drops that of a
// transaction_rollback, of which only the class is known: 40000. REQUIRES: called inside a catch block.
[[nodiscard]] std::string_view current_state() noexcept;

// Calls function and maps what it throws.
template <class Function>
auto mapped(Stage stage, std::string_view doing, Function&& function) {
  try {
    return function();
  } catch (...) {
    raise_current(stage, doing);
  }
}

}  // namespace fenceguard::postgres
