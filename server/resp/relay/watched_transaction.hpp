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

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/resp/relay/port.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {

class WatchedTransaction {
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
  struct Result {
    enum class Kind {
      replies,  // Redis's, in text
      refused,  // by a fence: refusal tells which claim, verdict and highest; or for want of a claim
      fault,    // nothing was applied, or that is not known
    };
    Kind kind = Kind::fault;
    std::string text{};  // what the client gets
    HeldClaimPtr refusal{};
    std::string missing{};  // to which resource a claim would be needed
    Fault fault{FaultKind::unavailable, {}};
    bool is_moved = false;  // nothing was applied; the slot is elsewhere: text has the redirection
  };

  WatchedTransaction(RelayPort& port, const redis::Keys& keys, std::int64_t jump_max)
      : port_{port}, keys_{keys}, jump_max_{jump_max} {}

  [[nodiscard]] bool is_running() const noexcept { return stage_ != Stage::idle; }
  [[nodiscard]] Channel channel() const noexcept { return channel_; }
  // Judged commands that write were sent, and not answered.
  [[nodiscard]] bool may_take_effect() const noexcept {
    return stage_ == Stage::applying && work_.writes && !work_.claims.empty();
  }
  void begin(Work work, Channel channel, std::function<void(const Claim&)> raised);

  // A reply on its channel. True: it is over, see result().
  [[nodiscard]] bool replied(std::string_view reply);
  // The channel was lost. was_sent: as Relay::lost().
  void lost(bool was_sent, std::string_view why);
  [[nodiscard]] Result& result() noexcept { return result_; }
  // Gives back what it took for the last one.
  void forget() noexcept {
    free_memory(work_);
    free_memory(result_);
  }
  [[nodiscard]] const Work& work() const noexcept { return work_; }

 private:
  enum class Stage { idle, judging, applying, undoing };

  void judge();
  [[nodiscard]] bool end_judging();
  [[nodiscard]] bool applied(std::string_view reply);
  [[nodiscard]] bool undo();
  [[nodiscard]] bool finish();
  void take_judgement(std::size_t at, std::string_view reply);
  void take_absence(std::string_view reply);
  void take_error(std::string_view reply);
  void fail(Fault fault);
  void fail_with_reply(std::string_view error);

  RelayPort& port_;
  const redis::Keys& keys_;
  const std::int64_t jump_max_;
  std::function<void(const Claim&)> raised_;
  Work work_;
  Channel channel_ = Channel::spare;
  Stage stage_ = Stage::idle;
  Result result_;
  std::size_t seen_ = 0;  // replies in this stage
  int attempt_ = 0;
  bool is_refused_ = false;     // the judgement's end is known: result_
  bool has_forgotten_ = false;  // the server did not have the script
  bool is_queueing_ = false;    // Redis has answered MULTI
};

}  // namespace fenceguard::resp
