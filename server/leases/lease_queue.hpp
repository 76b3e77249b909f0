#pragma once

// LeaseQueue: which ask is next for each lock, as a pure state machine: events and moments in, actions out,
// no clock, no thread, no source. LeaseService drives it.
//
// Per resource there is one queue. At most one step is under way in a queue: the first ask in it goes to the
// source, or a lease that no client took is given back. So an ask of a holder never overlaps with the giving
// back of the same holder's lease. A waiting ask costs no thread; only the first in the queue goes to the
// source again.
//
// An ask lives until its answer was delivered, because a lease whose answer never arrived is given back,
// unless the same holder has asked again: then that ask inherits the debt.
//
// Not thread-safe. Memory: one entry per ask; asks that are not answered are bounded by asks_max.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "guard/claim.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard {

class LeaseQueue {
 public:
  using Time = BootClock::time_point;
  using Duration = std::chrono::milliseconds;
  using AskId = std::uint64_t;

  struct Ask {
    Resource resource;
    Holder holder;
    bool is_named;  // the caller chose the holder, so it may be one that asks again
    Time until;     // how long it waits; not in the future: it is asked once at most
  };

  // What the driver has to do.
  struct Action {
    enum class Kind {
      ask,       // step: ask the source for `ask`; answered by held(), granted() or failed()
      revert,    // step: release `claim` at the source; answered by reverted()
      identify,  // is the present lease that of `ask`'s holder? answered by identified()
      refuse,    // answer `ask`: the lock is held, `retry_after`
      dismiss,   // answer `ask`: it was withdrawn, or the queue was closed
    };
    Kind kind;
    AskId ask = 0;
    std::optional<Claim> claim{};
    Duration retry_after{};
  };
  using Actions = std::vector<Action>;

  explicit LeaseQueue(std::size_t asks_max) : asks_max_{asks_max} {}

  // A new ask; nothing if there are too many or the queue is closed.
  [[nodiscard]] std::optional<AskId> arrive(Ask ask, Time now, Actions& actions);

  void identified(AskId id, bool is_holder, Time now, Actions& actions);

  // The ends of the step `ask`. held: another holder has the lock, perhaps for another hint.
  void held(AskId id, Duration hint, Time now, Actions& actions);
  // granted: advanced, and about to be answered. False if the caller is gone: the lease is taken back if it
  // is new. One that the same holder had before was handed out by another ask and stays.
  [[nodiscard]] bool granted(AskId id, const Claim& claim, Duration ttl, Time now, Actions& actions,
                             bool is_new = true);
  // failed: the ask is over. What lease it may have left behind, if its outcome is not known, is no ask's
  // debt.
  void failed(AskId id, Time now, Actions& actions);

  void reverted(const Resource& resource, Time now, Actions& actions);

  // The caller went away before it was answered.
  void gone(AskId id, Time now, Actions& actions);
  // What became of the answer to a granted ask.
  void delivered(AskId id, Time now, Actions& actions);
  void undelivered(AskId id, Time now, Actions& actions);

  // A lease of resource was released or ended through this sidecar.
  void released(const Resource& resource, Time now, Actions& actions);

  // Time has passed; call it at wake_at().
  void tick(Time now, Actions& actions);
  [[nodiscard]] std::optional<Time> wake_at() const;

  // Dismisses all waiting asks and takes no more; steps under way go on to their end.
  void close(Actions& actions);
  // Asks that are not answered.
  [[nodiscard]] std::size_t asks_open() const noexcept { return asks_open_; }
  // No step is under way or due.
  [[nodiscard]] bool is_idle() const noexcept { return busy_queues_ == 0; }

 private:
  enum class State { waiting, stepping, answered };
  struct Entry {
    Ask ask;
    State state = State::waiting;
    std::int64_t place = 0;       // in the queue
    bool was_asked = false;       // no need to ask the source before the queue's next poll
    bool is_identifying = false;  // not refused before it is known whether it is the holder's
    bool is_gone = false;
    std::optional<Claim>
        pending_release{};           // to be given back unless the answer, or a later one, is delivered
    std::optional<Token> granted{};  // what its answer says
  };
  struct WaitQueue {
    std::map<std::int64_t, AskId> waiting;
    std::map<Holder, std::set<AskId>> by_holder;  // every ask of the queue, answered ones included
    std::deque<AskId> overdue;                    // waiting past their time, to be refused at the step's end
    std::vector<Claim> reverts;
    bool is_busy = false;
    bool was_released = false;  // during the step: what the source said in it may be older
    AskId watermark = 0;        // asks from here on arrived after the step began
    Time held_until{};
    Time ask_at{};
    std::optional<Time> poll{};  // its place in polls_
  };
  using WaitQueues = std::map<Resource, WaitQueue>;

  void proceed(WaitQueues::iterator queue, Time now, Actions& actions);
  bool begin_revert(WaitQueue& queue, Actions& actions);
  void refuse_overdue(WaitQueues::iterator queue, Time now, Actions& actions);
  void refuse(AskId id, Time now, Actions& actions);
  void complete(AskId id, bool is_delivered);
  void move_to_front(WaitQueue& queue, AskId id);
  void end_step(WaitQueue& queue);
  void set_poll(WaitQueues::iterator queue, std::optional<Time> at);
  [[nodiscard]] Duration poll_interval(Duration hint) const;
  [[nodiscard]] Entry* find(AskId id, State state);

  std::size_t asks_max_;
  std::size_t asks_open_ = 0;  // not answered
  std::size_t busy_queues_ = 0;
  AskId next_id_ = 1;
  std::int64_t next_place_ = 0;
  std::int64_t front_place_ = -1;
  bool is_closed_ = false;
  WaitQueues queues_;
  std::unordered_map<AskId, Entry> asks_;
  std::set<std::pair<Time, AskId>> expiries_;
  std::set<std::pair<Time, Resource>> polls_;
};

}  // namespace fenceguard
