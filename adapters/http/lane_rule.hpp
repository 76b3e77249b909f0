#pragma once

// The rule of the LaneTable. An operation passes through three stages: it is decided on, alone in its lanes
// (the fence is looked up, judged, raised); admitted, it waits until it may go; a write is then in flight
// until its end is known and recorded.
//
// Every event touches the lanes that it changes; before the call returns each of them lets go what may.

#include <deque>
#include <vector>

#include "adapters/http/lane.hpp"
#include "guard/fence_cache.hpp"

namespace fenceguard::proxy {

// One call of the LaneTable.
struct Turn {
  Time now;
  Actions& actions;
};

class LaneTable::Impl {
 public:
  explicit Impl(LaneLimits limits) : limits_{limits}, remembered_{limits.fences_max} {}

  void ask(Ask&& ask, Turn turn);
  void ended(Ticket ticket, Ending ending, Turn turn);
  [[nodiscard]] Ruling judge_read(Ticket ticket) const;
  void end_read(Ticket ticket, Turn turn);
  [[nodiscard]] bool withdraw(Ticket ticket, Turn turn);
  void tick(Turn turn);

  void loaded(const Resource& resource, const Outcome<FenceView>& outcome, Turn turn);
  void raised(const Claim& claim, const Outcome<Ruling>& outcome, Turn turn);
  void closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome, Turn turn);
  void recorded(const Claim& claim, Ticket ticket, const Outcome<Ruling>& outcome, Turn turn);

  void close_all(Time until) { all_closed_until_ = std::max(all_closed_until_, until); }
  void forget_fences(Turn turn);
  [[nodiscard]] bool is_overtaken(const Resource& resource, Token token) const;
  [[nodiscard]] std::optional<Fault> quarantine(std::string_view name, Time now) const;
  [[nodiscard]] std::optional<Time> due() const;
  [[nodiscard]] bool is_settled(Time now) const;
  [[nodiscard]] Figures figures() const;

 private:
  // Deciding: lane_decision.cpp.
  [[nodiscard]] static std::size_t limit(Kind kind, std::size_t waiting_max) noexcept;
  [[nodiscard]] bool decide_at_once(Ask& ask, Turn turn);
  [[nodiscard]] bool is_known(Lane& lane, const Resource& resource);
  void take_up(Passage& passage, Turn turn);
  void decide(Passage& passage, Turn turn);
  [[nodiscard]] bool load_unknown(Passage& passage, Turn turn);
  [[nodiscard]] bool raise_lower(Passage& passage, Turn turn);
  void answered(Passage& passage, Turn turn);
  void adopt(Lane& lane, const Resource& resource, const FenceView& found, Turn turn);
  void remember(const Lane& lane, const Resource& resource);
  void lose(Lane& lane, Passage& passage, const Resource& resource, const Fault& fault);
  [[nodiscard]] bool refuse_if_judged(Passage& passage, Turn turn);
  [[nodiscard]] std::vector<Passage*> take_waiting();

  // Waiting, entering and ending: lane_drain.cpp.
  void line_up(Passage& passage, Turn turn);
  void line_up_revoke(Passage& passage, Turn turn);
  [[nodiscard]] bool may_enter(const Lane& lane, const Claim& claim) const;
  void enter(Passage& passage, Turn turn);
  void let_in(Lane& lane, const Claim& claim);
  void sweep(Lane& lane, Turn turn);
  void close(Lane& lane, Turn turn);
  void look_at(Lane& lane, Turn turn);
  void let_go(Lane& lane, Turn turn);
  void look_at_touched(Turn turn);
  void leave(Passage& passage, Turn turn);

  void refuse(Passage& passage, std::size_t claim, Ruling ruling, Turn turn);
  void fail(Passage& passage, Fault fault, Turn turn);
  void fail_closed(Passage& passage, const Lane& lane, Turn turn);
  void release(Passage& passage);
  void end_waiting(Passage& passage);
  void retire(Passage& passage);
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
  std::uint64_t generation_ = 0;
  std::size_t waiting_ = 0;
  std::size_t in_flight_ = 0;
  std::size_t closed_ = 0;
  std::uint64_t settle_closures_ = 0;
};

}  // namespace fenceguard::proxy
