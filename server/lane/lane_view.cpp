#include <algorithm>

#include "server/lane/lane_table.hpp"

// What is told of the lanes to those outside of them.
namespace fenceguard::proxy {

std::optional<Fault> LaneTable::quarantine(std::string_view name, Time now) const {
  const Lane* lane = book_.find_lane(name);
  const bool is_open = lane != nullptr ? !is_closed(*lane, now) : all_closed_until_ <= now;
  if (is_open) return std::nullopt;
  return closed_fault(lane, now);
}

std::optional<Time> LaneTable::due() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.front().until;
}

bool LaneTable::is_settled(Time now) const {
  if (in_flight_ > 0 || all_closed_until_ > now) return false;
  if (!timers_.empty() && timers_.back().until > now) return false;
  bool is_recorded = true;
  book_.for_each_lane([&](const Lane& lane) { is_recorded &= !lane.unrecorded; });
  return is_recorded;
}

// Copies no more names than are asked for, because it is called while nothing else may enter.
std::vector<LaneTable::View> LaneTable::list(const FenceListing& listing, Which which, Time now) const {
  const auto is_own = [now](const Lane& lane) { return lane.unrecorded || now < lane.closed_until; };
  std::vector<const Lane*> first;
  const auto by_name = [](const Lane* a, const Lane* b) { return a->name < b->name; };
  book_.for_each_lane([&](const Lane& lane) {
    if (lane.name <= listing.after || !lane.name.starts_with(listing.prefix)) return;
    const bool is_at_work = which == Which::all && (lane.waiting > 0 || lane.in_flight > 0);
    if (!is_at_work && !is_own(lane)) return;
    if (first.size() == listing.limit && !by_name(&lane, first.front())) return;
    if (first.size() == listing.limit) {
      std::ranges::pop_heap(first, by_name);
      first.pop_back();
    }
    first.push_back(&lane);
    std::ranges::push_heap(first, by_name);
  });
  std::ranges::sort_heap(first, by_name);
  std::vector<View> views;
  views.reserve(first.size());
  for (const Lane* lane : first) {
    const Time left = is_own(*lane) ? closed_fault(lane, now).retry_after : Time{0};
    views.push_back({lane->name, lane->waiting, lane->in_flight, left});
  }
  return views;
}

LaneTable::Figures LaneTable::figures() const {
  Figures figures{book_.lane_count(), waiting_, in_flight_, closed_, settle_closures_};
  book_.for_each_lane([&](const Lane& lane) { figures.cuts_owed += lane.pending_fencing != 0 ? 1 : 0; });
  return figures;
}

}  // namespace fenceguard::proxy
