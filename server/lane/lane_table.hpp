#pragma once

// LaneTable: the rule of the lane as a pure state machine, for all resources of one upstream: events in,
// actions out; no socket, thread, clock or store inside. The LaneScheduler feeds it.
//
// The upstream has no atomic check, so the guard is the atom: what it lets through it must know to be over
// before a newer token enters. A higher token raises the fence at once, durably, and then one rule: a claim
// waits while any write with a lower token is unfinished or unknown, also when it equals the fence. Writes
// under one token run side by side, but for those with a sequence, which follow each other. An unknown
// outcome closes the resource to every claim until the settle time has passed.
//
// Where old holders are cut off, the store says with each fence what is owed (see PendingFencing). Nothing
// enters a lane in which a cut is owed: the first operation that asks begins it, once at a time, as soon as
// the higher token is durable, and beside the drain. Where it fails all that wait are told so, and after a
// pause the next operation begins it again.
//
// A lane exists while something is in flight, read, waits, is closed or is being cut off in it; else only its
// fence is remembered. Not thread-safe. Times are of one monotonic clock.
//
// An operation passes through three stages: it is decided on, alone in its lanes (the fence is looked up,
// judged, raised); admitted, it waits until it may go; a write is then in flight until its end is known and
// recorded. Every event touches the lanes that it changes; before the call returns each of them lets go what
// may.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/store/fence_cache.hpp"
#include "guard/store/fence_store.hpp"
#include "server/lane/lane.hpp"
#include "server/lane/lane_events.hpp"

namespace fenceguard::proxy {

inline constexpr Time retry_min{1'000};  // what is unavailable for now is to be tried again no sooner

// One call of the LaneTable: when it is made, and where it puts what is to be done.
struct Step {
  Time now;
  Actions& actions;
};

struct LaneLimits {
  Time settle{30'000};
  std::size_t waiting_per_resource_max = 1'000;
  std::size_t waiting_max = 10'000;
  std::size_t fences_max = 0;  // fences of idle resources that are remembered; the others are looked up
};

class LaneTable {
 public:
  explicit LaneTable(LaneLimits limits) : limits_{limits}, remembered_{limits.fences_max} {}
  LaneTable(const LaneTable&) = delete;
  LaneTable& operator=(const LaneTable&) = delete;

  // Each appends what is to be done now to turn.actions. REQUIRES, for all: turn.now never goes back. Of a
  // revoke's claim only the resource counts.
  void ask(Ask&& ask, Step step);
  // As ask() for a write or a read whose claim has no sequence, where nothing has to be looked up, raised,
  // waited for or told to others: the resource's highest token, and it has entered. Nothing: nothing was
  // asked.
  [[nodiscard]] std::optional<std::int64_t> enter_at_once(Ticket ticket, Kind kind, const Claim& claim,
                                                          Time now);
  // Nothing if the write is not in flight.
  void ended(Ticket ticket, Ending ending, Step step);
  // As ended() with a known end, where nothing follows from it. False: nothing was done.
  [[nodiscard]] bool end_at_once(Ticket ticket);
  // What the fence says now of a read that has entered. While it is admitted, no newer token's write is in.
  [[nodiscard]] Ruling judge_read(Ticket ticket) const;
  [[nodiscard]] bool is_read_admitted(Ticket ticket) const;
  void end_read(Ticket ticket, Step step);
  // The client went away while its operation waited. False if it waits no longer.
  bool withdraw(Ticket ticket, Step step);
  // Opens what has settled.
  void tick(Step step);

  // The store's answers. pending: see Lane; counts where the outcome is no fault.
  void loaded(const Resource& resource, const Outcome<FenceView>& outcome, Step step,
              std::int64_t pending = 0);
  void raised(const Claim& claim, const Outcome<Ruling>& outcome, Step step, std::int64_t pending = 0);
  void closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome, Step step,
              std::int64_t pending = 0);
  void recorded(const Claim& claim, Ticket ticket, const Outcome<Ruling>& outcome, Step step);
  // All holders up to the token were cut off, durably; or they were not.
  void cut_off(const Resource& resource, Token old_token, const Outcome<bool>& outcome, Step step);

  // Why every resource is closed: a write that is not known here may be under way. Beginnings of sentences.
  static constexpr std::string_view left_open =
      "the guard before this one ended with a write unfinished or unknown";
  static constexpr std::string_view not_shown =
      "nothing shows that this state is the very one which the last guard closed in order (it is new, or was "
      "restored, copied, moved, initialised again or set by hand, or the machine was started anew), so a "
      "write "
      "may be unfinished or unknown";
  // Closes every resource until then. why: a literal.
  void close_all(Time until, std::string_view why = left_open) {
    all_closed_until_ = std::max(all_closed_until_, until);
    all_closed_because_ = why;
  }
  // Fences kept here may be too low: the store was compacted, or its floor raised. Waiting operations are
  // judged anew.
  void forget_fences(Step step);

  [[nodiscard]] bool is_overtaken(const Resource& resource, Token token) const;
  [[nodiscard]] std::optional<Fault> quarantine(std::string_view name, Time now) const;
  // When tick() is due; nothing if it is not.
  [[nodiscard]] std::optional<Time> due() const;
  // True if nothing is in flight and no outcome is unknown: a stop now leaves nothing open.
  [[nodiscard]] bool is_settled(Time now) const;

  struct Figures {
    std::size_t lanes = 0;
    std::size_t waiting = 0, in_flight = 0, closed = 0;
    std::uint64_t settle_closures = 0;  // since the start
    std::size_t cuts_owed = 0;          // lanes that nothing enters before old holders are cut off
  };
  [[nodiscard]] Figures figures() const;

  // A lane as an operator sees it.
  struct View {
    std::string resource;
    std::size_t waiting = 0, in_flight = 0;
    Time quarantined{};  // for so long; 0: it is open
  };
  enum class Which { all, quarantined };
  // A page of those in which something waits, is in flight or is closed, in the order of their resources.
  // What closes every resource is not told of each.
  [[nodiscard]] std::vector<View> list(const FenceListing& listing, Which which, Time now) const;

 private:
  // Deciding: lane_decision.cpp.
  [[nodiscard]] static std::size_t limit(Kind kind, std::size_t waiting_max) noexcept;
  [[nodiscard]] bool decide_at_once(Ask& ask, Step step);
  [[nodiscard]] bool is_known(Lane& lane, const Resource& resource);
  void evaluate(Admission& admission, Step step);
  void decide(Admission& admission, Step step);
  [[nodiscard]] bool load_unknown(Admission& admission, Step step);
  [[nodiscard]] bool raise_lower(Admission& admission, Step step);
  void answered(Admission& admission, Step step);
  void adopt(Lane& lane, const Resource& resource, const FenceView& found, Step step);
  void remember(const Lane& lane, const Resource& resource);
  void lose(Lane& lane, Admission& admission, const Fault& fault, Step step);
  [[nodiscard]] bool refuse_if_judged(Admission& admission, Step step);
  [[nodiscard]] std::vector<Admission*> take_waiting();

  // Waiting, entering and ending: lane_drain.cpp.
  void enqueue(Admission& admission, Step step);
  void enqueue_revoke(Admission& admission, Step step);
  [[nodiscard]] bool may_enter(const Lane& lane, const Claim& claim) const;
  void enter(Admission& admission, Step step);
  void let_in(Lane& lane, const Claim& claim);
  void sweep(Lane& lane, Step step);
  void close(Lane& lane, Step step);
  void begin_cut_off(Lane& lane, const Resource& resource, Step step);
  [[nodiscard]] static std::optional<Fault> cut_off_fault(const Lane& lane, Time now);
  void fail_waiting(Lane& lane, const Fault& fault, Step step);
  void look_at(Lane& lane, Step step);
  void dispatch(Lane& lane, Step step);
  void look_at_touched(Step step);
  void leave(Admission& admission, Step step);

  void refuse(Admission& admission, std::size_t claim, Ruling ruling, Step step);
  void fail(Admission& admission, Fault fault, Step step);
  void fail_closed(Admission& admission, const Lane& lane, Step step);
  void release(Admission& admission);
  void end_waiting(Admission& admission);
  void retire(Admission& admission);
  void touch(Lane& lane);

  [[nodiscard]] Time open_at(const Lane& lane) const noexcept {
    return std::max(lane.closed_until, all_closed_until_);
  }
  [[nodiscard]] bool is_closed(const Lane& lane, Time now) const noexcept {
    return now < open_at(lane) || lane.unrecorded.has_value();
  }
  // lane: null where there is none, and everything is closed.
  [[nodiscard]] Fault closed_fault(const Lane* lane, Time now) const;

  const LaneLimits limits_;
  LaneBook book_;
  FenceCache remembered_;  // what is durable
  std::vector<Lane*> touched_;
  struct Timer {
    Time until;
    Lane* lane;
  };
  std::deque<Timer> timers_;  // in order, because each is set the settle time ahead
  Time all_closed_until_{};
  std::string_view all_closed_because_;
  std::uint64_t generation_ = 0;
  std::size_t waiting_ = 0;
  std::size_t in_flight_ = 0;
  std::size_t closed_ = 0;
  std::uint64_t settle_closures_ = 0;
};

}  // namespace fenceguard::proxy
