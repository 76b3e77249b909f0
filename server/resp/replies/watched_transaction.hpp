#pragma once

// WatchedTransaction: commands under claims where one script cannot do them unchanged: several claimed
// resources, MULTI, a client's script, more words than Lua takes. On a connection of the client's own: the
// fences and the floor's mark are watched, each claim is judged, MULTI; all these answers are awaited; then
// the commands and EXEC. All of it is applied or nothing: a fence that changed in between makes EXEC answer
// nil.
//
// Two things must not be: EXEC in the flight of the judgement, which would run unjudged where the judgement
// fails, and commands in the flight of MULTI, which would run on their own where MULTI is refused.
//
// A pure state machine: replies in, what is to be sent out. Not thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "server/resp/replies/own_connection.hpp"
#include "server/resp/replies/pending_reply.hpp"

namespace fenceguard::resp {

class WatchedTransaction final : public PendingReply {
 public:
  struct Work {
    std::vector<HeldClaimPtr> claims{};  // each resource once
    Unclaimed unclaimed{};               // which must have no fence; without either nothing is judged
    std::string commands{};              // as they are sent
    std::size_t count = 0;
    int slot = -1;
    bool writes = false;
    bool is_single = false;  // one command, whose reply is wanted, not EXEC's
    // The client watches keys: a nil answer is the client's. On the channel 'own' then.
    bool is_watching = false;
  };
  // channel: own where the client began the transaction (its watches end with it), else spare.
  WatchedTransaction(const RelayContext& context, OwnConnection& connection, Work work, Channel channel)
      : PendingReply{context, channel, work.slot}, connection_{connection}, work_{std::move(work)} {}

  std::size_t send(bool again) override;
  [[nodiscard]] Answer replied(std::string_view reply) override;
  [[nodiscard]] Answer lost(bool was_sent, std::string_view why) override;
  void woken() override;
  [[nodiscard]] bool writes() const noexcept override { return work_.writes; }
  [[nodiscard]] bool is_blocking() const noexcept override { return true; }
  [[nodiscard]] bool awaits_judged_write() const noexcept override {
    return stage_ == Stage::applying && work_.writes && !work_.claims.empty();
  }
  void add_claims(std::vector<HeldClaimPtr>& claims) const override {
    claims.insert(claims.end(), work_.claims.begin(), work_.claims.end());
  }

 private:
  // moved: until it is woken, and tried again.
  enum class Stage { judging, applying, undoing, moved };

  struct Result {
    enum class Kind {
      replies,  // Redis's
      refused,  // by a fence: refusal; or for want of a claim: missing; nothing was applied
      fault,    // nothing was applied, or that is not known
    };
    Kind kind = Kind::fault;
    HeldClaimPtr refusal{};
    std::string missing{};  // to which resource a claim would be needed
    Fault fault{FaultKind::unavailable, {}};
    bool is_moved = false;  // nothing was applied, because the slot is elsewhere: the fault says where
  };

  void begin();
  void judge();
  void send_bytes(std::string_view bytes, std::size_t replies);
  void take_judgement(std::string_view reply);
  void take_verdict(const HeldClaimPtr& claim, std::string_view reply);
  void take_absence(std::string_view reply);
  void take_error(std::string_view reply);
  void end_judging();
  [[nodiscard]] Answer take_applied(std::string_view reply);
  [[nodiscard]] Answer take_undone();
  // The first refusal counts, and its words go to the client. False: there is one.
  [[nodiscard]] bool begin_refusal(Result::Kind kind, std::string_view error);
  void refuse(Fault fault);
  // Redis's own words, by which it did nothing.
  void refuse_with(std::string_view error);
  // Nothing where it is tried again.
  [[nodiscard]] Answer end(std::string_view answer);
  void report() const;

  OwnConnection& connection_;
  Work work_;
  Stage stage_ = Stage::judging;
  Result result_;
  std::size_t seen_ = 0;  // replies in this stage
  int attempts_ = 0, moves_ = 0;
  bool is_refused_ = false;     // the judgement's end is known: result_
  bool has_forgotten_ = false;  // the server did not have the script
  bool is_queueing_ = false;    // Redis has answered MULTI
};

// Between MULTI and EXEC.
struct QueuedTransaction {
  WatchedTransaction::Work work{};
  std::uint64_t number = 0;  // of this connection's
  bool is_dirty = false;     // a command was refused: EXEC fails
};

}  // namespace fenceguard::resp
