#include "server/lane/lane.hpp"

#include <algorithm>
#include <utility>

namespace fenceguard::proxy {
namespace {

constexpr std::size_t spare_max = 1024;

template <class T>
std::unique_ptr<T> take_spare(std::vector<std::unique_ptr<T>>& spare) {
  if (spare.empty()) return std::make_unique<T>();
  auto taken = std::move(spare.back());
  spare.pop_back();
  return taken;
}

template <class T>
void give_back(std::vector<std::unique_ptr<T>>& spare, std::unique_ptr<T> dropped) {
  if (spare.size() >= spare_max) return;
  *dropped = T{};
  spare.push_back(std::move(dropped));
}

void add_entry(Admission& admission, std::size_t asked_at, Claim&& claim, Lane& lane) {
  QueueEntry& entry = admission.entries[admission.entry_count++];
  entry.asked_at = asked_at;
  entry.claim = std::move(claim);
  entry.admission = &admission;
  entry.lane = &lane;
}

}  // namespace

Verdict Lane::verdict(const Claim& claim) const {
  std::optional<FenceRef> record;
  if (view.record) {
    record =
        FenceRef{view.record->token, view.record->holder.id(), view.record->sequence, view.record->closed};
  }
  return judge_verdict(record, view.floor, claim);
}

bool Lane::adopt(const FenceView& found) {
  bool changed = view.floor < found.floor;
  view.floor = std::max(view.floor, found.floor);
  if (!found.record) {
    // Folded into the floor, which at the same height knows no holder.
    if (view.record && view.record->token.value() <= found.floor) view.record.reset();
    return changed;
  }
  if (!view.record || view.record->token < found.record->token) {
    view.record = found.record;
    return true;
  }
  if (view.record->token == found.record->token) {
    changed |= found.record->closed && !view.record->closed;
    view.record->closed |= found.record->closed;
    view.record->sequence = std::max(view.record->sequence, found.record->sequence);
  }
  return changed;
}

bool Lane::adopt(const Ruling& ruling) {
  // Above its record a resource has only the floor.
  const bool record_stands = ruling.fence && ruling.fence->token.value() == ruling.highest;
  const bool floor_counts = ruling.verdict != Verdict::admitted && !record_stands;
  return adopt(FenceView{ruling.fence, floor_counts ? ruling.highest : 0});
}

Lane* LaneBook::find_lane(std::string_view name) const {
  const auto found = lanes_.find(name);
  return found == lanes_.end() ? nullptr : found->second.get();
}

Lane& LaneBook::lane(const std::string& name) {
  if (Lane* found = find_lane(name)) return *found;
  auto made = take_spare(spare_lanes_);
  made->name = name;
  Lane& lane = *made;
  lanes_.emplace(std::string_view{lane.name}, std::move(made));
  return lane;
}

void LaneBook::drop(Lane& lane) {
  const auto found = lanes_.find(lane.name);
  auto dropped = std::move(found->second);
  lanes_.erase(found);
  give_back(spare_lanes_, std::move(dropped));
}

Admission* LaneBook::find_admission(Ticket ticket) const {
  const auto found = admissions_.find(ticket);
  return found == admissions_.end() ? nullptr : found->second.get();
}

Admission& LaneBook::make_admission(Ask&& ask) {
  auto made = take_spare(spare_admissions_);
  made->ticket = ask.ticket;
  made->kind = ask.kind;
  const bool is_pair = ask.claims.size() == 2 && ask.claims[0].resource != ask.claims[1].resource;
  made->asked_twice = ask.claims.size() == 2 && !is_pair;
  const bool is_swapped = is_pair && ask.claims[1].resource < ask.claims[0].resource;
  for (std::size_t i = 0; i < (is_pair ? 2 : 1); ++i) {
    const std::size_t asked_at = is_swapped ? 1 - i : i;
    Lane& its = lane(ask.claims[asked_at].resource.name());
    add_entry(*made, asked_at, std::move(ask.claims[asked_at]), its);
  }
  return keep(std::move(made));
}

Admission& LaneBook::make_admission(Ticket ticket, Kind kind, const Claim& claim, Lane& lane) {
  auto made = take_spare(spare_admissions_);
  made->ticket = ticket;
  made->kind = kind;
  add_entry(*made, 0, Claim{claim}, lane);
  return keep(std::move(made));
}

Admission& LaneBook::keep(std::unique_ptr<Admission> made) {
  Admission& admission = *made;
  admissions_.emplace(admission.ticket, std::move(made));
  return admission;
}

void LaneBook::drop(Admission& admission) {
  const auto found = admissions_.find(admission.ticket);
  auto dropped = std::move(found->second);
  admissions_.erase(found);
  give_back(spare_admissions_, std::move(dropped));
}

bool KnownFences::find(Lane& lane, const Resource& resource) {
  if (lane.is_known) return true;
  auto fence = cache_.find(resource);
  if (!fence) return false;
  (void)lane.adopt(FenceView{std::move(fence), 0});
  lane.is_known = true;
  return true;
}

bool KnownFences::adopt(Lane& lane, const Resource& resource, const FenceView& found) {
  const bool changed = lane.adopt(found);
  lane.is_known = lane.generation == generation_;
  cache(lane, resource);
  return changed;
}

// A cached fence is taken for the whole: a record below the floor is not, nor one with fencing pending.
void KnownFences::cache(const Lane& lane, const Resource& resource) {
  const auto& record = lane.view.record;
  if (lane.is_known && !lane.cut_off.is_pending() && record && record->token.value() >= lane.view.floor) {
    cache_.put(resource, *record);
  } else {
    cache_.erase(resource);
  }
}

void KnownFences::forget(Lane& lane) {
  lane.is_known = false;
  cache_.erase(Resource{lane.name});
}

void KnownFences::forget_all() {
  ++generation_;
  cache_.clear();
}

}  // namespace fenceguard::proxy
