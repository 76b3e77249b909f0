#pragma once

// Relay: what becomes of each request of one client, by what its connection claims and awaits. Writes that
// follow each other under one claim are one batch in the guard's script; what a script cannot do unchanged is
// a watched transaction; what only reads passes; what waits, or leaves something behind, goes on a connection
// of the client's own. Replies leave in the order of the requests.
//
// A pure state machine: requests and replies in, calls of its ports out. Not thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "server/resp/command/command_rules.hpp"
#include "server/resp/relay/client_state.hpp"
#include "server/resp/relay/connection_commands.hpp"
#include "server/resp/unsettled_claims.hpp"

namespace fenceguard::resp {

class Relay {
 public:
  // All of the context outlives it.
  explicit Relay(const RelayContext& context) : state_{context} {}

  // Before all others: the claims that the sidecar holds for its clients, which then bring none, in the
  // database of its URL.
  void hold(std::vector<Claim> claims);
  // Likewise, but the client gets them only when it says FENCE.BEGIN: until then it may do nothing but log
  // in, and is told why.
  void hold_until_begun(std::vector<Claim> claims, std::string_view why);
  // They were lost: no request is taken any more, and the connection ends when what was begun is answered.
  void lose_claims();

  // One request: its words, at least one, and its bytes in RESP. False: not now; it is to be offered again
  // after the next event.
  [[nodiscard]] bool take(redis::Arguments words, std::string_view bytes);
  // No more is to be taken for now: what was gathered is sent.
  void flush() { state_.replies.flush(); }

  void replied(Channel channel, std::string_view reply);
  // A reply of the shared channel will not come, or nothing more of another. was_sent: Redis may have the
  // request. why: a sentence.
  void lost(Channel channel, bool was_sent, std::string_view why);
  // See Login::bound(). False: the connections that were made sure of are not gone over to.
  bool bound(std::string_view error, bool needs_password);
  void learned();
  void woken();

  // What was read is no request: why is told behind what is pending, and the connection ends.
  void break_off(std::string_view why);

  // Nothing is pending, and nothing is in the middle.
  [[nodiscard]] bool is_idle() const noexcept;
  // Likewise, or it only waits for what others do: an end loses nothing.
  [[nodiscard]] bool may_end() const noexcept;
  // What is pending is answered without anything that others do.
  [[nodiscard]] bool is_answering() const noexcept;
  // The client may make use of Redis.
  [[nodiscard]] bool is_let_in() const noexcept { return state_.login.is_let_in(); }
  // Redis sends messages of its own accord.
  [[nodiscard]] bool is_subscribed() const noexcept { return state_.own.is_subscribed(); }
  // No request is taken now.
  [[nodiscard]] bool is_held() const noexcept;
  // Requests and batches that are not answered.
  [[nodiscard]] std::size_t pending() const noexcept;
  // Redis was sent a write under a claim on this channel, and has not answered it.
  [[nodiscard]] bool awaits_judged_write(Channel channel) const noexcept {
    return state_.replies.awaits_judged_write(channel);
  }
  // The claims of all such writes, and of those that may still be sent. unread: requests that were not taken
  // yet, and may be.
  [[nodiscard]] std::vector<UnsettledClaims::Key> claims_under_way(std::string_view unread) const;

 private:
  using Facts = redis::CommandTable::Facts;

  [[nodiscard]] bool bind();
  [[nodiscard]] bool take_command(const Request& request);
  [[nodiscard]] bool take_known(const Facts& facts, const Request& request);
  [[nodiscard]] bool take_unknown(const Request& request);
  // FENCED: one command under a claim of its own.
  [[nodiscard]] bool take_fenced(const Request& request);
  [[nodiscard]] bool take_under(const Facts& facts, const Request& request, const SpokenClaim& spoken);
  [[nodiscard]] bool take_write(const Facts& facts, const Request& request, bool is_script);
  [[nodiscard]] bool take_judged(const Facts& facts, const Request& request, Needs needs, bool is_script);
  [[nodiscard]] bool pass(const Request& request, bool writes);
  [[nodiscard]] bool send_alone(OwnCommand::Kind kind, const Facts& facts, const Request& request);
  [[nodiscard]] bool queue_command(const Rule& rule, const Request& request);
  // What the command's keys need, each once. The error for want of a claim, or empty.
  [[nodiscard]] std::string find_needs(Needs& needs);
  void end_broken_off();

  ClientState state_;
  ConnectionCommands connection_commands_{state_};
  CommandKeys keys_;            // of the command that is being taken
  std::string binding_fault_;   // why there is no connection
  bool has_learned_ = false;    // Redis was asked for the command that is being taken
  bool is_broken_off_ = false;  // it ends when nothing is pending any more
};

}  // namespace fenceguard::resp
