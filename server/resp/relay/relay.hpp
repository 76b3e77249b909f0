#pragma once

// Relay: what one client's connection claims, has selected, queued and awaits, and so what becomes of each of
// its requests. Writes that follow each other under one claim are one run of the guard's script; what a
// script cannot do unchanged is a watched transaction; what only reads passes. Replies leave in the order of
// the requests.
//
// A pure state machine: requests and replies in, calls of its port out. Not thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/resp/relay/claims.hpp"
#include "server/resp/relay/command_batch.hpp"
#include "server/resp/relay/command_rules.hpp"
#include "server/resp/relay/login.hpp"
#include "server/resp/relay/port.hpp"
#include "server/resp/relay/relay_options.hpp"
#include "server/resp/relay/reply_queue.hpp"
#include "server/resp/relay/subscriptions.hpp"
#include "server/resp/relay/watched_transaction.hpp"

namespace fenceguard::resp {

class Relay {
 public:
  // All outlive it.
  Relay(const RelayOptions& options, RelayPort& port, RelayObserver& observer);

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
  void flush();

  void replied(Channel channel, std::string_view reply);
  // A reply of the shared channel will not come, or nothing more of another. was_sent: Redis may have the
  // request. why: a sentence.
  void lost(Channel channel, bool was_sent, std::string_view why);
  // See Login::bound(). False: the connections that were made sure of are not gone over to.
  bool bound(std::string_view error, bool needs_password);
  void learned();
  void woken();

  // What was read is no request: why is told behind what is owed, and the connection ends.
  void break_off(std::string_view why);

  // Nothing is owed to the client, and nothing is in the middle.
  [[nodiscard]] bool is_idle() const noexcept;
  // Likewise, or it only waits for what others do: an end loses nothing.
  [[nodiscard]] bool may_end() const noexcept;
  // What is owed to the client comes without anything that others do.
  [[nodiscard]] bool is_answering() const noexcept;
  // The client may make use of Redis.
  [[nodiscard]] bool is_let_in() const noexcept { return login_.is_let_in(); }
  // What comes is not asked for each time.
  [[nodiscard]] bool is_subscribed() const noexcept { return subscriptions_.is_active(); }
  // No request is taken now.
  [[nodiscard]] bool is_held() const noexcept;
  [[nodiscard]] std::size_t owed() const noexcept;
  // Redis was sent a write under a claim on this channel, and has not answered it.
  [[nodiscard]] bool awaits_judged_write(Channel channel) const noexcept;
  // The claims of all such writes, and of those that may still be sent; all are to the present database.
  [[nodiscard]] std::vector<HeldClaimPtr> claims_under_way() const;
  [[nodiscard]] int database() const noexcept { return login_.database(); }

 private:
  using Facts = redis::CommandTable::Facts;
  enum class Word : std::uint8_t;
  struct Request {
    redis::Arguments words;
    std::string_view bytes;
  };
  // Between MULTI and EXEC.
  struct Queue {
    WatchedTransaction::Work work{};
    std::uint64_t number = 0;  // of this connection's
    bool is_dirty = false;     // a command was refused: EXEC fails
  };

  // asks: whether it may do what waits in alone_next_.
  enum class Alone : std::uint8_t { nothing, reads, writes, runs_script, watches, asks };
  // What a command needs: a claim, or where a client may do without, that there is no fence.
  struct Needs {
    std::vector<HeldClaimPtr> claims{};
    Unclaimed unclaimed{};

    [[nodiscard]] bool empty() const noexcept { return claims.empty() && unclaimed.empty(); }
  };

  // relay.cpp
  [[nodiscard]] bool take_command(const Request& request);
  [[nodiscard]] bool take_write(const Facts& facts, const Request& request, bool is_script);
  [[nodiscard]] bool take_judged(const Facts& facts, const Request& request, Needs needs, bool is_script);
  [[nodiscard]] bool take_waiting(const Facts& facts, const Request& request, const Needs& needs);
  [[nodiscard]] bool pass(const Request& request, bool writes);
  [[nodiscard]] bool pass_alone(const Request& request, Alone alone);
  [[nodiscard]] bool queue_command(const Rule& rule, const Request& request);
  [[nodiscard]] bool queue_bytes(std::string_view bytes);
  [[nodiscard]] bool begin_transaction(WatchedTransaction::Work work, Channel channel);
  void end_transaction();
  void send_run();
  void end_broken_off();
  [[nodiscard]] bool take_binding(std::string_view error, bool needs_password);
  void take_held_claims();
  void replied_alone(Channel channel, std::string_view reply);
  void lost_alone(Channel channel, bool was_sent, std::string_view why);
  void answer(std::string_view bytes);
  [[nodiscard]] bool answer_error(std::string_view text);
  // Of one server at a time, so that the order is kept. False: not yet.
  [[nodiscard]] bool may_send(int slot);
  // True when all before was answered, so that what follows may go another way.
  [[nodiscard]] bool is_quiet();
  // False: not yet, because an earlier write under one of them is still under way.
  [[nodiscard]] bool are_settled(const std::vector<HeldClaimPtr>& claims);

  // command_validation.cpp: why a command may not be relayed, as the error; empty: it may. Its keys are in
  // keys_ then, and its slot in slot_.
  [[nodiscard]] std::string objection_to(const Facts& facts, redis::Arguments words, const Rule& rule);
  // Of a command under FENCED.
  [[nodiscard]] std::string objection_under(const Facts& facts, redis::Arguments words, const Rule& rule,
                                            const std::string& resource);
  [[nodiscard]] std::string find_keys(const Facts& facts, redis::Arguments words);
  // What its keys need, each once.
  [[nodiscard]] std::string find_needs(Needs& needs);
  // From memory: the fence has refused one of them.
  [[nodiscard]] std::string known_refusal(const std::vector<HeldClaimPtr>& claims);
  // While fences may be evicted, no verdict is to be trusted.
  [[nodiscard]] std::string objection_to_judging(const char* operation,
                                                 const std::vector<HeldClaimPtr>& claims);
  [[nodiscard]] std::string objection_to_waiting(const Facts& facts) const;
  [[nodiscard]] bool take_unknown(const Request& request);
  [[nodiscard]] std::string objection_to_signature(const char* operation, const SpokenClaim& spoken);

  // connection_commands.cpp: what is the connection's own.
  [[nodiscard]] static std::optional<Word> word_of(redis::Arguments words) noexcept;
  [[nodiscard]] bool take_word(Word word, const Request& request);
  [[nodiscard]] bool take_fence(redis::Arguments words);
  void end_fence(const HeldClaimPtr& claim, const BatchResult& result);
  [[nodiscard]] bool take_fenced(const Request& request);
  [[nodiscard]] bool take_under(const Facts& facts, const Request& request, HeldClaimPtr claim);
  [[nodiscard]] bool take_unfence(redis::Arguments words);
  [[nodiscard]] bool take_show(redis::Arguments words);
  [[nodiscard]] bool take_begin(redis::Arguments words);
  [[nodiscard]] bool take_multi(redis::Arguments words);
  [[nodiscard]] bool take_exec(redis::Arguments words);
  [[nodiscard]] bool take_discard(redis::Arguments words);
  [[nodiscard]] bool take_watch(const Request& request);
  [[nodiscard]] bool take_unwatch(const Request& request);
  [[nodiscard]] bool take_login(Word word, redis::Arguments words);
  [[nodiscard]] bool take_client(redis::Arguments words);
  [[nodiscard]] bool take_subscribed(const Request& request);
  [[nodiscard]] bool take_reset();
  [[nodiscard]] bool take_quit();
  void list_claims();
  void drop_watch();

  const RelayOptions& options_;
  RelayPort& port_;
  RelayObserver& observer_;
  std::vector<Claim> held_;      // for the client; none: it brings its own
  std::vector<Claim> reserved_;  // likewise, once it says that it begins anew
  std::string lost_;             // the error that it gets until then
  Claims claims_;
  Login login_;
  ReplyQueue owed_;
  WatchedTransaction transaction_;
  Subscriptions subscriptions_;
  std::unique_ptr<Queue> queue_;
  CommandBatch run_;  // gathered, and not sent yet
  int run_slot_ = -1;
  std::uint64_t commands_seen_ = 0, queues_seen_ = 0;
  std::vector<std::string_view> keys_;  // of the command that is looked at
  int slot_ = -1;
  std::string client_name_;
  int server_ = -1;               // of a cluster, that of what is owed
  Alone alone_ = Alone::nothing;  // what was sent alone on the client's own connection
  std::string alone_next_;
  int watched_slot_ = -1;
  int moves_ = 0;                      // how often the slot of a transaction was at another server
  bool is_transaction_moved_ = false;  // it goes on when it is woken
  bool skips_reply_ = false;           // that of what was sent ahead of it
  bool is_waiting_ = false;            // nothing is taken before the next event
  bool wants_quiet_ = false;           // likewise, before all that is owed was answered
  bool is_settling_ = false;           // likewise, before it is woken
  bool is_ending_ = false;
  bool is_broken_off_ = false;  // it ends when nothing is owed any more
  bool has_fenced_ = false;     // a claim was said by FENCE, and held
  bool is_watching_ = false;
  bool has_lost_watch_ = false;  // EXEC answers nil
  bool has_learned_ = false;     // the commands, for the name that is looked at
  std::string binding_fault_;
};

}  // namespace fenceguard::resp
