#pragma once

// LaneAdmission: decides on the operations that ask to enter, one at a time in each lane: the fence is looked
// up, the claim judged, a higher token raised. What equals its fence is handed to the LaneDrain. A pair takes
// its two lanes in the order of their names, so that crossing pairs cannot wait for each other.
//
// Not thread-safe.

#include <optional>

#include "server/lane/lane_drain.hpp"

namespace fenceguard::proxy {

class LaneAdmission {
 public:
  LaneAdmission(LaneBook& book, KnownFences& fences, Quarantine& quarantine, LaneDrain& drain,
                const LaneLimits& limits)
      : book_{book}, fences_{fences}, quarantine_{quarantine}, drain_{drain}, limits_{limits} {}

  // As those of the LaneTable, but for what follows in the lanes that they touch.
  void ask(Ask&& ask, Step step);
  [[nodiscard]] std::optional<std::int64_t> enter_at_once(Ticket ticket, Kind kind, const Claim& claim,
                                                          Time now);
  void loaded(const Resource& resource, const Outcome<FenceView>& outcome, Step step, std::int64_t pending);
  void raised(const Claim& claim, const Outcome<Ruling>& outcome, Step step, std::int64_t pending);
  void closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome, Step step,
              std::int64_t pending);
  void forget_fences(Step step);

  // Decides on the next of the lane, unless one is being decided on.
  void decide_next(Lane& lane, Step step);

 private:
  [[nodiscard]] bool decide_at_once(Ask& ask, Step step);
  void take_lanes(Admission& admission, Step step);
  void decide(Admission& admission, Step step);
  [[nodiscard]] bool load_unknown(Admission& admission, Step step);
  [[nodiscard]] bool raise_lower(Admission& admission, Step step);
  void answered(Admission& admission, Step step);
  void adopt(Lane& lane, const Resource& resource, const FenceView& found, std::int64_t pending, Step step);
  void lose(Lane& lane, Admission& admission, const Fault& fault, Step step);

  LaneBook& book_;
  KnownFences& fences_;
  Quarantine& quarantine_;
  LaneDrain& drain_;
  const LaneLimits& limits_;
};

}  // namespace fenceguard::proxy
