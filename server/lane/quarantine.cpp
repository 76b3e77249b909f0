#include "server/lane/quarantine.hpp"

#include <fmt/format.h>

namespace fenceguard::proxy {

void Quarantine::close(Lane& lane, Time now) {
  lane.closure.until = now + settle_;
  timers_.push_back({lane.closure.until, &lane});
  if (lane.closure.timers++ == 0) ++closed_lanes_;
  ++closures_;
}

Fault Quarantine::fault(const Lane* lane, Time now) const {
  const Time until = lane != nullptr ? std::max(lane->closure.until, all_closed_until_) : all_closed_until_;
  const bool is_unrecorded = lane != nullptr && lane->closure.unrecorded;
  const Time left = std::max(until - now, is_unrecorded ? retry_min : Time{0});
  const bool is_own = is_unrecorded || until > all_closed_until_;
  constexpr auto own =
      "the end of a write on this resource was not seen: it is quarantined until the settle time is over";
  constexpr std::string_view all = ": every resource is quarantined until the settle time is over";
  return {FaultKind::unavailable, is_own ? own : fmt::format("{}{}", all_closed_because_, all), left};
}

std::optional<Time> Quarantine::due() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.front().until;
}

Lane* Quarantine::take_due(Time now) {
  if (timers_.empty() || timers_.front().until > now) return nullptr;
  Lane* const lane = timers_.front().lane;
  timers_.pop_front();
  if (--lane->closure.timers == 0) --closed_lanes_;
  return lane;
}

}  // namespace fenceguard::proxy
