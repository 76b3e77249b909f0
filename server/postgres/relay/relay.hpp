#pragma once

// Relay: what one client's connection is in the middle of, and so what becomes of each message of either
// side. A transaction of a guarded session begins with statements of ours, in the flight of the client's
// first one: they make it writable and admit the session's claims, or, without a claim, see to it that it
// stays read-only. Everything else is relayed unchanged, and what answers our statements is taken out.
//
// Whatever is overlooked fails by itself: the session was started with default_transaction_read_only=on.
//
// After a Sync or a Query nothing of the client's is taken until the server is ready again: so at the
// beginning of each flight it is known, from the server, whether a transaction is open.
//
// A pure state machine: bytes of both sides in, bytes for both sides out. Not thread-safe.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/postgres/relay/relay_options.hpp"
#include "server/postgres/relay/startup.hpp"
#include "server/postgres/relay/statements.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {

class Relay {
 public:
  // Options and observer outlive it. What becomes of the startup is in to_server(), or the client is told and
  // is_over(). held: what the sidecar holds for all its clients, which then bring no claims; empty: they do.
  Relay(const RelayOptions& options, RelayObserver& observer, Startup startup,
        const std::vector<Claim>& held = {});

  void from_client(std::string_view bytes);
  void from_server(std::string_view bytes);

  // What is to be sent; the caller takes it out.
  [[nodiscard]] std::string& to_client() noexcept { return to_client_; }
  [[nodiscard]] std::string& to_server() noexcept { return to_server_; }
  [[nodiscard]] const std::string& to_client() const noexcept { return to_client_; }
  [[nodiscard]] const std::string& to_server() const noexcept { return to_server_; }

  // More of the client's bytes are of use now. Others are kept, and taken when the server has answered.
  [[nodiscard]] bool takes_client() const noexcept;
  // What was taken from the client is with the server: nothing is kept back until it has answered.
  [[nodiscard]] bool has_relayed_all() const noexcept { return !is_held() || client_in_.empty(); }
  // Neither a transaction nor a request is open.
  [[nodiscard]] bool is_idle() const noexcept;
  // The client may make use of the server.
  [[nodiscard]] bool is_ready() const noexcept { return is_begun_ && !is_over(); }
  // Both connections end when what there is to be sent is sent.
  [[nodiscard]] bool is_over() const noexcept { return phase_ == Phase::over; }
  // Sends the server what changes nothing, where that can be.
  void probe_server();
  // The held claims were lost: nothing more is taken from the client, and it is over; but where a commit may
  // be under way, not before the client was told what became of it.
  void lose_claims();
  // The client is told so, and it is over.
  void end(std::string_view state, std::string_view message, std::string_view hint = {});

 private:
  enum class Phase : std::uint8_t { authenticating, advancing, ready, over };
  enum class Mode : std::uint8_t { raw, fenced, read_only };
  // A statement that is not ordinary.
  struct Special {
    Kind kind;
    std::string text;
  };
  // What the server owes: the last message that it answers with, by the request.
  struct Expected {
    enum class Whose : std::uint8_t { client, ours, probe, refusal };
    char request;  // P B D E C S of the extended protocol, Q: a whole query
    Whose whose = Whose::client;
    Shift shift{};                // what is ours in the client's query
    std::string name{};           // of a statement that is parsed or closed
    bool is_end = false;          // of the client, and known to end its transaction
    bool admits = false;          // what is ours, and admits the claims
    bool wraps = false;           // what is ours, and begins a block around a CALL
    bool is_before_call = false;  // a Sync of ours, behind which a function call of the client's is sent
    bool unwraps = false;         // of the client, and ends that block, or makes it the client's own
    bool is_replaced = false;
    std::optional<Special> before{};                            // what the name stood for
    bool was_read_only = false, was_chained_read_only = false;  // the transaction, ahead of it
    std::size_t rollbacks_to = 0;  // so many tags of a ROLLBACK are of one to a savepoint
  };
  using Whose = Expected::Whose;
  static constexpr std::size_t expected_max = 4'096;

  // relay.cpp: bytes, and what the server says.
  [[nodiscard]] std::size_t take_client(std::string_view in);
  [[nodiscard]] std::size_t take_server(std::string_view in);
  [[nodiscard]] bool is_held() const noexcept;
  void take_server_message(char type, std::string_view message, std::string_view body);
  void take_authentication(std::string_view message, std::string_view body);
  void take_parameter(std::string_view body);
  void take_ready(std::string_view message, char status);
  void take_error(std::string_view body);
  void take_answer(char type);
  void take_tag(std::string_view body, bool is_expected);
  [[nodiscard]] bool expects_end(std::string_view tag) noexcept;
  void take_back();
  void tell_admitted();
  void refused_by_fence(std::string_view state, std::string_view body);
  [[nodiscard]] bool objects_to_parameters();

  // loss.cpp
  [[nodiscard]] bool may_be_committing() const noexcept;
  void end_where_lost();

  // beginning.cpp
  void take_startup();
  void hand_over();
  void begin_session();
  void advance_claims();
  void advance_next();
  void take_advance(char type, std::string_view body);
  void refuse_advance(std::string_view verdict, std::string_view highest);

  // requests.cpp: what the client says.
  [[nodiscard]] std::size_t take_client_message(char type, std::string_view in, std::size_t size);
  void take_query(std::string_view message, std::string_view body);
  // False: it is not sent yet.
  [[nodiscard]] bool take_call(std::string_view message, bool is_whole);
  void take_parse(std::string_view message, std::string_view body);
  void take_bind(std::string_view message, std::string_view body);
  void take_execute(std::string_view message, std::string_view body);
  void take_describe(std::string_view message, std::string_view body);
  void take_close(std::string_view message, std::string_view body);
  void take_sync();
  [[nodiscard]] bool needs_opening(Kind kind) const noexcept;
  // False: it was refused in its place.
  [[nodiscard]] bool open_for(Kind kind);
  void open();
  void sync();
  void send_own(std::string_view text);
  void close_own_portal();
  void refuse(std::string_view why, std::string_view hint, bool syncs);
  void raise(std::string error, bool syncs);
  void send_opened(const std::string& text, const Statements& found);
  void bind_special(std::string_view portal, std::string_view text, std::string_view rest);
  void forget_own();
  void note_mode(const Statements& statements) noexcept;
  void hand_on_mode(Kind kind) noexcept;
  void expect(char request, Whose whose = Whose::client);
  [[nodiscard]] std::string opening_query() const;
  [[nodiscard]] std::size_t opening_statements() const noexcept;
  [[nodiscard]] Kind kind_of_statement(std::string_view name) const;
  void remember(std::string_view name, Kind kind, std::string_view text);

  const RelayOptions& options_;
  RelayObserver& observer_;
  Startup startup_;
  Phase phase_ = Phase::authenticating;
  Mode mode_ = Mode::raw;
  bool brings_claims_ = true;  // the client; else they are held for it
  bool is_lost_ = false;       // what was held
  bool is_begun_ = false;      // the client was told once that it is ready
  bool is_below_ = false;      // a fence is, of the held claims: they are to be advanced again
  std::vector<SignedClaim> claims_;
  std::string seal_;       // the digest of what is handed over to the server
  std::string admission_;  // the statement that admits them
  std::string to_client_, to_server_;
  std::string client_in_, server_in_;                    // what is not a whole message yet, or is held
  std::size_t client_passing_ = 0, server_passing_ = 0;  // bytes to come of a message that is relayed
  bool is_dropping_ = false;                             // what passes of the server's is not for the client
  std::map<std::string, std::string, std::less<>> parameters_;  // that matter
  std::string ready_message_;

  // Of the claim that is being advanced.
  std::size_t advanced_ = 0;
  std::string verdict_, highest_;

  std::deque<Expected> expected_;
  char status_ = 'I';     // as the server said last
  bool is_open_ = false;  // our statements came before what follows in this transaction
  bool is_strict_ =
      false;  // a transaction ended in this flight, or was chained: nothing may pass without them
  bool is_in_block_ = false;           // the client has begun one, as far as was sent
  bool is_wrapped_ = false;            // we have begun one around a CALL, to be committed at Sync
  bool is_rolling_back_ = false;       // that one
  bool is_read_only_ = false;          // the client said so of this transaction
  bool is_chained_read_only_ = false;  // and was so from the one that it is chained to
  bool is_in_flight_ = false;          // messages of the extended protocol without a Sync behind them
  bool is_full_ = false;      // more is owed than is kept count of: nothing is taken before half of it came
  bool is_skipping_ = false;  // an error: the server takes nothing before Sync
  bool is_copying_in_ = false;
  bool is_copy_waiting_ = false;  // data for one that the server has not begun yet
  bool is_own_left_ = false;      // a statement of ours may be, at the server
  std::size_t own_before_ =
      0;  // statements of the client's in front of ours, in the query that is being answered
  std::size_t own_left_ = 0;      // statements of ours in it
  std::string stale_;             // the refusal of a claim by its fence, which is final
  std::string refusal_;           // in place of the error that the server was made to raise
  bool is_call_refused_ = false;  // the function call that comes now is answered with that
  Statements portal_;             // what the unnamed one is of
  std::map<std::string, Special, std::less<>> specials_;  // by their names; every other statement is ordinary
};

}  // namespace fenceguard::pgwire
