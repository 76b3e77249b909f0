#pragma once

// What a server's answer, or the want of one, means for the caller: the one place where MariaDB's errors
// become faults.
//
// Thread safety: the functions are.

#include <stdexcept>
#include <string>
#include <string_view>

namespace fenceguard::mariadb {

// The server answered with an error.
class ServerError : public std::runtime_error {
 public:
  ServerError(unsigned number, std::string state, const std::string& message)
      : std::runtime_error{message}, number_{number}, state_{std::move(state)} {}
  [[nodiscard]] unsigned number() const noexcept { return number_; }
  [[nodiscard]] const std::string& state() const noexcept { return state_; }

 private:
  unsigned number_;
  std::string state_;
};

// There was no answer, and there will be none: the session is gone (where the server had time to say so:
// 1927, it was killed; 1053, the server stops), or is dropped after a time-out.
class ConnectionLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

constexpr unsigned lock_wait_timeout = 1205;  // of the server's numbers: older transactions are still open
constexpr unsigned table_access_denied = 1142;

// What a call may have done when it fails.
enum class Stage {
  before_commit,  // it commits nothing, or nothing of it was sent: no answer means that nothing was done
  at_commit,      // it commits: no answer means that it may have
};

// Throws what the exception now being handled means, as an Error. doing: 'advancing accounts/42'.
// Errors of our own pass. REQUIRES: called inside a catch block.
[[noreturn]] void raise_current(Stage stage, std::string_view doing);

template <class Function>
auto mapped(Stage stage, std::string_view doing, Function&& function) {
  try {
    return function();
  } catch (...) {
    raise_current(stage, doing);
  }
}

// Whether the error says that the fences are not installed: no such database, procedure or table.
[[nodiscard]] bool is_not_installed(const ServerError& error) noexcept;

}  // namespace fenceguard::mariadb
