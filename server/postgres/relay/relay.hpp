#pragma once

// Relay: what becomes of each message of a client's and of the server's. A transaction of a guarded session
// begins with statements of ours, in the flight of the client's first one: they make it writable and admit
// the session's claims, or, without a claim, see to it that it stays read-only. Everything else is relayed
// unchanged, and what answers our statements is taken out.
//
// Whatever is overlooked fails by itself: the session was started with default_transaction_read_only=on.
//
// After a Sync or a Query nothing of the client's is taken until the server is ready again: so at the
// beginning of each flight it is known, from the server, whether a transaction is open.
//
// A pure state machine: bytes of both sides in, bytes for both sides out. It is no coroutine that awaits each
// answer: a client sends ahead of the answers, and the server sends what was not asked for, so both sides are
// read at any time, and what is awaited is a queue (pending_replies.hpp). Not thread-safe.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/postgres/relay/claim_advance.hpp"
#include "server/postgres/relay/pending_replies.hpp"
#include "server/postgres/relay/prepared_statements.hpp"
#include "server/postgres/relay/relay_options.hpp"
#include "server/postgres/relay/server_parameters.hpp"
#include "server/postgres/relay/startup.hpp"
#include "server/postgres/relay/statements.hpp"
#include "server/postgres/relay/transaction_state.hpp"

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
  [[nodiscard]] bool has_relayed_all() const noexcept { return !is_held() || from_client_.kept.empty(); }
  // Neither a transaction nor a request is open.
  [[nodiscard]] bool is_idle() const noexcept;
  // The client may make use of the server.
  [[nodiscard]] bool is_ready() const noexcept { return phase_ >= Phase::advancing_again && !is_over(); }
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
  // unguarded: without a claim, where --unfenced allow lets all pass. The client was told that it is ready
  // from advancing_again on.
  enum class Phase : std::uint8_t { authenticating, advancing, advancing_again, guarded, unguarded, over };
  // Of the held claims: a fence was put below them, and they are to be advanced again; or they are lost.
  enum class Lease : std::uint8_t { valid, fence_below, lost };
  // Messages of the extended protocol without a Sync behind them. failed: the server takes none before that.
  enum class Flight : std::uint8_t { none, open, failed };
  // From the client. awaited: data has come for one that the server has not begun yet.
  enum class CopyIn : std::uint8_t { none, awaited, open };
  struct Stream {
    std::string kept{};       // not a whole message yet, or held
    std::size_t passing = 0;  // bytes to come of a message that is relayed
    bool is_dropped = false;  // that message is not for the other side
  };
  // Errors in place of those that the server raises.
  struct Refusals {
    std::string next{};      // of the one that it was made to raise
    std::string by_fence{};  // of a claim, which is final
    bool of_call = false;    // 'next' is for the function call that follows
  };
  using Whose = ExpectedReply::Whose;
  using Effect = ExpectedReply::Effect;

  void end_with(std::string error);
  [[nodiscard]] bool is_held() const noexcept;

  void feed(Stream& stream, std::string_view bytes);
  // How many bytes were taken: of a message that passes perhaps its beginning; 0: it is not all there, or
  // held.
  [[nodiscard]] std::size_t take_messages(Stream& stream, std::string_view in);
  std::size_t pass(Stream& stream, std::string_view in, std::size_t size);
  [[nodiscard]] std::size_t break_off(std::string_view state, std::string_view why);

  // What the server says.
  [[nodiscard]] std::size_t take_server_message(char type, std::string_view in, std::size_t size);
  void read_server_message(char type, std::string_view message, std::string_view body);
  void take_authentication(std::string_view message, std::string_view body);
  void begin_session(std::string_view ready);
  void advance(ClaimAdvance::Outcome outcome);
  void take_ready(std::string_view message, char status);
  void take_error(std::string_view body);
  void take_answer(char type);
  void take_tag(std::string_view tag, bool is_foreseen);

  // What the client says.
  [[nodiscard]] std::size_t take_client_message(char type, std::string_view in, std::size_t size);
  [[nodiscard]] std::size_t take_request(char type, std::string_view in, std::size_t size);
  [[nodiscard]] std::size_t take_copy_data(char type, std::string_view in, std::size_t size);
  void take_query(std::string_view message, std::string_view body);
  // False: it is not sent yet.
  [[nodiscard]] bool take_call(std::string_view message, bool is_whole);
  void take_parse(std::string_view message, std::string_view body);
  void take_bind(std::string_view message, std::string_view body);
  void take_execute(std::string_view message, std::string_view body);
  void take_describe(std::string_view message, std::string_view body);
  void take_close(std::string_view message, std::string_view body);
  void take_sync();

  // What is ours.
  [[nodiscard]] std::array<std::string_view, 2> admission_statements() const noexcept;
  void send_with_admission(const std::string& text, const Statements& found);
  // What has to go ahead of a statement that is parsed, bound or described. False: it was refused in its
  // place.
  [[nodiscard]] bool send_prelude(Kind kind);
  void send_admission();
  void send_own(std::string_view text, Effect effect = Effect::none);
  void bind_special(std::string_view portal, std::string_view text, std::string_view rest);
  void close_own_statement();
  void close_own_portal();
  void sync();
  void refuse(std::string_view why, std::string_view hint, bool syncs);
  void raise(std::string error, bool syncs);
  ExpectedReply& expect(char request, Whose whose = Whose::client);

  // The end of a session whose claims the sidecar held, and lost: no sooner than what may be committed is
  // known, and with nothing said of it that is not known.
  void end_where_lost();
  [[nodiscard]] bool may_be_committing() const noexcept;

  const RelayOptions& options_;
  RelayObserver& observer_;
  Phase phase_ = Phase::authenticating;
  Lease lease_ = Lease::valid;
  ClaimAdvance claims_;
  ServerParameters parameters_;
  Stream from_client_, from_server_;
  std::string to_client_, to_server_;
  TransactionState transaction_;
  PreparedStatements statements_;
  PendingReplies replies_;
  Flight flight_ = Flight::none;
  CopyIn copy_in_ = CopyIn::none;
  Refusals refusals_;
};

}  // namespace fenceguard::pgwire
