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
// doing begins the message: 'advancing accounts/42'. REQUIRES: called inside a catch block.
[[noreturn]] void raise_current(Stage stage, std::string_view doing);

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
