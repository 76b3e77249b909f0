#pragma once

// ConnectionCommands: what a client says of its connection itself: as whom it is there and in which database
// (AUTH, HELLO, SELECT, CLIENT, RESET, QUIT), what it claims (FENCE and its kin), what it groups (MULTI,
// EXEC, WATCH ...), and to what it listens (SUBSCRIBE ...). Redis is sent none of these words as they are,
// but WATCH and the subscriptions, which it gets on the client's own connection.
//
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/resp/relay/client_state.hpp"

namespace fenceguard::resp {

// A request of a client: its words, and its bytes in RESP.
struct Request {
  redis::Arguments words;
  std::string_view bytes;
};

class ConnectionCommands {
 public:
  enum class Name : std::uint8_t {
    auth,
    hello,
    select,
    client,
    reset,
    quit,
    fence,
    fenced,  // the relay's, because of the command in it
    unfence,
    fences,
    fence_show,
    fence_begin,
    multi,
    exec,
    discard,
    watch,
    unwatch,
    subscribe  // and its kin
  };

  explicit ConnectionCommands(ClientState& state) : state_{state} {}

  // Nothing: it is none of these.
  [[nodiscard]] static std::optional<Name> find(redis::Arguments words) noexcept;
  // Why the command may not be said now; empty: it may.
  [[nodiscard]] std::string objection_to(Name name, redis::Arguments words) const;
  // REQUIRES: there is no objection. False: not now; it is to be offered again after the next event.
  [[nodiscard]] bool take(Name name, const Request& request);
  // Any request, while the client has subscriptions.
  [[nodiscard]] bool take_subscribed(const Request& request);
  // See Login::bound().
  [[nodiscard]] bool bound(std::string_view error, bool needs_password);

 private:
  [[nodiscard]] bool take_login(Name name, redis::Arguments words);
  [[nodiscard]] bool take_client(redis::Arguments words);
  [[nodiscard]] bool take_reset();
  [[nodiscard]] bool take_quit();

  [[nodiscard]] bool take_fence(redis::Arguments words);
  [[nodiscard]] bool take_unfence(redis::Arguments words);
  [[nodiscard]] bool take_show(redis::Arguments words);
  [[nodiscard]] bool take_begin(redis::Arguments words);
  [[nodiscard]] bool list_claims();

  [[nodiscard]] bool take_multi(redis::Arguments words);
  [[nodiscard]] bool take_exec(redis::Arguments words);
  [[nodiscard]] bool end_exec(QueuedTransaction& transaction);
  [[nodiscard]] bool take_discard(redis::Arguments words);
  [[nodiscard]] bool take_watch(const Request& request);
  [[nodiscard]] bool take_unwatch(const Request& request);

  ClientState& state_;
  std::string client_name_;
  std::uint64_t transactions_seen_ = 0;
};

}  // namespace fenceguard::resp
