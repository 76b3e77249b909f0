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
// Where old holders are cut off, the store says with each fence what is pending (see PendingFencing). Nothing
// enters a lane with fencing pending: the first operation that asks begins the cut-off, one at a time, as
// soon as the higher token is durable, and beside the drain. Where it fails, all that wait are told so, and
// after a pause the next operation begins it again.
//
// A lane exists while something is in flight, read, waits, is closed or is being cut off in it; else only its
// fence is remembered. Not thread-safe. Times are of one monotonic clock.
//
// An operation passes through three stages: the LaneAdmission decides on it, alone in its lanes; admitted, it
// waits in the LaneDrain until it may enter; a write is then in flight until its end is known and recorded.
// Every event touches the lanes that it changes; before the call returns, what may enter there has entered.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/store/fence_store.hpp"
#include "server/lane/lane_admission.hpp"

namespace fenceguard::proxy {

class LaneTable {
 public:
  explicit LaneTable(LaneLimits limits)
      : limits_{limits},
        fences_{limits.fences_max},
        quarantine_{limits.settle},
        drain_{book_, fences_, quarantine_, limits.waiting_per_resource_max},
        admission_{book_, fences_, quarantine_, drain_, limits_} {}
  LaneTable(const LaneTable&) = delete;
  LaneTable& operator=(const LaneTable&) = delete;

  // Each appends what is to be done now to step.actions. REQUIRES, for all: step.now never goes back. Of a
  // revoke's claim only the resource counts.
  void ask(Ask&& ask, Step step);
  // As ask() for a write or a read whose claim has no sequence, where nothing has to be looked up, raised,
  // waited for or told to others: the resource's highest token, and it has entered. Nothing: nothing was
  // asked.
  [[nodiscard]] std::optional<std::int64_t> enter_at_once(Ticket ticket, Kind kind, const Claim& claim,
                                                          Time now) {
    return admission_.enter_at_once(ticket, kind, claim, now);
  }
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

  // The store's answers. pending: see CutOffState; counts where the outcome is no fault.
  void loaded(const Resource& resource, const Outcome<FenceView>& outcome, Step step,
              std::int64_t pending = 0);
  void raised(const Claim& claim, const Outcome<Ruling>& outcome, Step step, std::int64_t pending = 0);
  void closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome, Step step,
              std::int64_t pending = 0);
  void recorded(const Claim& claim, Ticket ticket, const Outcome<Ruling>& outcome, Step step);
  // All holders up to the token were cut off, durably; or they were not.
  void cut_off(const Resource& resource, Token old_token, const Outcome<bool>& outcome, Step step);

  // Closes every resource until then. why: a literal, of the Quarantine's.
  void close_all(Time until, std::string_view why = Quarantine::left_open) {
    quarantine_.close_all(until, why);
  }
  // Fences kept here may be too low: the store was compacted, or its floor raised. Waiting operations are
  // judged anew.
  void forget_fences(Step step);

  [[nodiscard]] bool is_overtaken(const Resource& resource, Token token) const;
  [[nodiscard]] std::optional<Fault> quarantine(std::string_view name, Time now) const;
  // When tick() is due; nothing if it is not.
  [[nodiscard]] std::optional<Time> due() const { return quarantine_.due(); }
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
  // What enters in the touched lanes, and what is decided on next.
  void follow_up(Step step);
  void leave(Admission& admission, Step step);

  const LaneLimits limits_;
  LaneBook book_;
  KnownFences fences_;
  Quarantine quarantine_;
  LaneDrain drain_;
  LaneAdmission admission_;
};

}  // namespace fenceguard::proxy
