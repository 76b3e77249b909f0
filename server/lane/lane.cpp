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
  dropped->clear();
  spare.push_back(std::move(dropped));
}

}  // namespace

void Admission::clear() {
  stage = Stage::deciding;
  for (QueueEntry& place : entries) place.claim.reset();
  entry_count = 0;
  ready_count = 0;
  asked_twice = false;
  withdrawn = false;
  has_waited = false;
  has_raised = false;
  held = 0;
  store_calls = 0;
  fault.reset();
  refusal.reset();
}

void Lane::clear() {
  *this = Lane{};
}

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
  Admission& admission = *made;
  admission.ticket = ask.ticket;
  admission.kind = ask.kind;
  const bool is_pair = ask.claims.size() == 2 && ask.claims[0].resource != ask.claims[1].resource;
  admission.asked_twice = ask.claims.size() == 2 && !is_pair;
  admission.entry_count = is_pair ? 2 : 1;
  const bool is_swapped = is_pair && ask.claims[1].resource < ask.claims[0].resource;
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    QueueEntry& place = admission.entries[i];
    place.asked_at = is_swapped ? 1 - i : i;
    place.claim = std::move(ask.claims[place.asked_at]);
    place.admission = &admission;
    place.lane = &lane(place.claim->resource.name());
  }
  admissions_.emplace(ask.ticket, std::move(made));
  return admission;
}

Admission& LaneBook::make_admission(Ticket ticket, Kind kind, const Claim& claim, Lane& lane) {
  auto made = take_spare(spare_admissions_);
  Admission& admission = *made;
  admission.ticket = ticket;
  admission.kind = kind;
  admission.entry_count = 1;
  QueueEntry& place = admission.entries[0];
  place.asked_at = 0;
  place.claim = claim;
  place.admission = &admission;
  place.lane = &lane;
  admissions_.emplace(ticket, std::move(made));
  return admission;
}

void LaneBook::drop(Admission& admission) {
  const auto found = admissions_.find(admission.ticket);
  auto dropped = std::move(found->second);
  admissions_.erase(found);
  give_back(spare_admissions_, std::move(dropped));
}

}  // namespace fenceguard::proxy
