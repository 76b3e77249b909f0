#pragma once

// Login: as whom, and in which database, a client's commands go to Redis: the user of the storage's URL, lent
// to clients, or one as which the client logged in (AUTH, HELLO). And what a client is told about itself.
//
// A pure state machine. Not thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "server/resp/replies/relay_options.hpp"

namespace fenceguard::resp {

class Login {
 public:
  explicit Login(const RelayContext& context);

  [[nodiscard]] int database() const noexcept { return database_; }
  // A client that is not let in yet may only log in.
  [[nodiscard]] bool is_let_in() const noexcept { return is_let_in_ && !needs_password_; }
  [[nodiscard]] bool is_bound() const noexcept { return is_bound_; }
  [[nodiscard]] bool is_binding() const noexcept { return binding_.has_value(); }
  // After reset(), until bound().
  [[nodiscard]] bool is_resetting() const noexcept { return binding_ && binding_->is_reset; }

  // Makes sure of connections as things stand.
  void begin_binding();
  // The answer to AUTH [USER] PASSWORD, to HELLO [2 [AUTH USER PASSWORD] [SETNAME NAME]], to SELECT N; or
  // nothing: it comes from bound(). name: set by SETNAME.
  [[nodiscard]] std::optional<std::string> auth(redis::Arguments words);
  [[nodiscard]] std::optional<std::string> hello(redis::Arguments words, std::string& name);
  [[nodiscard]] std::optional<std::string> select(redis::Arguments words);
  // Back to how a connection begins. True: connections for that are to be made sure of, and 'success' is told
  // by bound().
  [[nodiscard]] bool reset(std::string success);

  // error: what Redis or the network said; empty: done. needs_password: there is a connection, and Redis
  // refuses everything on it but AUTH. The answer to the client; empty: nothing was asked.
  [[nodiscard]] std::string bound(std::string_view error, bool needs_password);

 private:
  struct Binding {
    Identity identity;
    int database;
    bool is_login;  // by the client
    std::string success;
    bool says_hello;
    bool is_reset = false;
  };

  [[nodiscard]] std::optional<std::string> log_in(Identity identity, bool says_hello);
  [[nodiscard]] std::string hello_text() const;
  void bind(Binding binding);

  const RelayContext& context_;
  Identity identity_;
  int database_;
  bool is_let_in_;
  bool needs_password_ = false;
  bool is_bound_ = false;
  std::optional<Binding> binding_;
};

}  // namespace fenceguard::resp
