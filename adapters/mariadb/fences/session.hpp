#pragma once

// Session: a connection for a thread that works in the background: opened when it is first needed, and again
// after it was lost. A call has the time limits of the connection.
//
// Thread safety: one thread at a time.

#include <optional>
#include <string_view>

#include "adapters/mariadb/connection.hpp"
#include "adapters/mariadb/errors.hpp"
#include "guard/error.hpp"

namespace fenceguard::mariadb {

class Session {
 public:
  explicit Session(Address address) : address_{std::move(address)} {}

  // Throws Unavailable.
  Connection& open() {
    if (!connection_ || !connection_->is_open()) {
      connection_.reset();
      connection_.emplace(address_);
    }
    return *connection_;
  }

  // function(connection), with its failure as one of our errors. A connection that the server had ended
  // while it was idle, or that an error left in a transaction, is opened anew before. Nothing is repeated.
  template <class Function>
  auto run(Stage stage, std::string_view doing, Function&& function) {
    if (connection_ && connection_->is_in_transaction(doing)) connection_.reset();
    auto& connection = is_sound() ? *connection_ : open();
    return mapped(stage, doing, [&] { return function(connection); });
  }

  // The same on the connection as it is, for what lives by that. Throws Unavailable where it is gone.
  template <class Function>
  auto run_if_open(std::string_view doing, Function&& function) {
    if (!is_sound()) throw Unavailable(std::string{doing} + ": the session is gone");
    return mapped(Stage::at_commit, doing, [&] { return function(*connection_); });
  }

  [[nodiscard]] const Address& address() const noexcept { return address_; }

 private:
  // The server says nothing on an idle connection but that it is over; one that it ended is dropped.
  [[nodiscard]] bool is_sound();

  const Address address_;
  std::optional<Connection> connection_;
};

}  // namespace fenceguard::mariadb
