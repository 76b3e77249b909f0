#include "server/lane/lane_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fenceguard::proxy {

void LaneTable::follow_up(Step step) {
  while (Lane* const lane = drain_.take_touched()) {
    drain_.dispatch(*lane, step);
    admission_.decide_next(*lane, step);
    if (lane->is_idle() && !lane->is_touched) book_.drop(*lane);
  }
}

void LaneTable::ask(Ask&& ask, Step step) {
  admission_.ask(std::move(ask), step);
  follow_up(step);
}

void LaneTable::loaded(const Resource& resource, const Outcome<FenceView>& outcome, Step step,
                       std::int64_t pending) {
  admission_.loaded(resource, outcome, step, pending);
  follow_up(step);
}

void LaneTable::raised(const Claim& claim, const Outcome<Ruling>& outcome, Step step, std::int64_t pending) {
  admission_.raised(claim, outcome, step, pending);
  follow_up(step);
}

void LaneTable::closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome, Step step,
                       std::int64_t pending) {
  admission_.closed(resource, ticket, outcome, step, pending);
  follow_up(step);
}

void LaneTable::cut_off(const Resource& resource, Token old_token, const Outcome<bool>& outcome, Step step) {
  drain_.cut_off(*book_.find_lane(resource.name()), resource, old_token, outcome.ok(), step);
  follow_up(step);
}

void LaneTable::forget_fences(Step step) {
  admission_.forget_fences(step);
  follow_up(step);
}

void LaneTable::ended(Ticket ticket, Ending ending, Step step) {
  Admission* const found = book_.find_admission(ticket);
  if (found == nullptr || found->stage != Admission::Stage::in_flight) return;
  Admission& admission = *found;
  admission.stage = Admission::Stage::recording;
  for (const QueueEntry& entry : admission.all()) {
    if (ending == Ending::unknown) drain_.close(*entry.lane, step);
    // Past its token the sequence counts no more.
    const bool counts = entry.claim->sequence && entry.lane->verdict(*entry.claim) == Verdict::admitted;
    if (ending != Ending::took_effect || !counts) continue;
    ++admission.store_calls;
    step.actions.emplace_back(Record{*entry.claim, ticket});
  }
  if (admission.store_calls == 0) leave(admission, step);
  follow_up(step);
}

bool LaneTable::end_at_once(Ticket ticket) {
  Admission* const found = book_.find_admission(ticket);
  if (found == nullptr || found->stage != Admission::Stage::in_flight || found->entry_count != 1)
    return false;
  Lane& lane = *found->entries[0].lane;
  const Claim& claim = *found->entries[0].claim;
  if (claim.sequence || lane.waiting > 0 || lane.is_contended()) return false;
  drain_.end_write(lane, claim);
  book_.drop(*found);
  if (lane.is_idle()) book_.drop(lane);
  return true;
}

void LaneTable::recorded(const Claim& claim, Ticket ticket, const Outcome<Ruling>& outcome, Step step) {
  Lane* const found = book_.find_lane(claim.resource.name());
  if (found == nullptr) return;
  Lane& lane = *found;
  auto& unrecorded = lane.closure.unrecorded;
  const bool is_own = unrecorded && unrecorded->ticket == ticket;
  const bool is_asked_again = is_own && unrecorded->is_asked;
  if (outcome.ok()) {
    if (is_own) unrecorded.reset();
    if (lane.adopt(outcome.value())) drain_.judge_waiting(lane, step);
    fences_.cache(lane, claim.resource);
  } else {
    // A duplicate of this sequence would enter, so nothing enters until it is recorded.
    unrecorded = Closure::Unrecorded{claim, ticket};
    drain_.close(lane, step);
  }
  drain_.touch(lane);
  // A pair's admission waits for the first record of either lane, and for no repetition.
  if (Admission* admission = is_asked_again ? nullptr : book_.find_admission(ticket)) {
    if (!outcome.ok()) {
      admission->fault = Fault{FaultKind::unknown,
                               fmt::format("the write took effect, and its sequence may not be recorded: {}",
                                           outcome.fault().message),
                               outcome.fault().retry_after};
    }
    if (--admission->store_calls == 0) leave(*admission, step);
  }
  follow_up(step);
}

// The write is over, or its lanes are closed for it.
void LaneTable::leave(Admission& admission, Step step) {
  for (const QueueEntry& entry : admission.all()) {
    drain_.end_write(*entry.lane, *entry.claim);
    drain_.touch(*entry.lane);
  }
  step.actions.emplace_back(LeftEvent{admission.ticket, std::move(admission.fault)});
  book_.drop(admission);
}

Ruling LaneTable::judge_read(Ticket ticket) const {
  const QueueEntry& entry = book_.find_admission(ticket)->entries[0];
  return judge(entry.lane->view, *entry.claim);
}

bool LaneTable::is_read_admitted(Ticket ticket) const {
  const QueueEntry& entry = book_.find_admission(ticket)->entries[0];
  return entry.lane->verdict(*entry.claim) == Verdict::admitted;
}

void LaneTable::end_read(Ticket ticket, Step step) {
  Admission* admission = book_.find_admission(ticket);
  if (admission == nullptr || admission->stage != Admission::Stage::reading) return;
  Lane& lane = *admission->entries[0].lane;
  --lane.reads;
  drain_.touch(lane);
  book_.drop(*admission);
  follow_up(step);
}

bool LaneTable::withdraw(Ticket ticket, Step step) {
  Admission* admission = book_.find_admission(ticket);
  if (admission == nullptr || admission->withdrawn) return false;
  if (admission->stage != Admission::Stage::deciding && admission->stage != Admission::Stage::waiting)
    return false;
  if (admission->store_calls > 0) {
    admission->withdrawn = true;
  } else {
    drain_.retire(*admission);
    follow_up(step);
  }
  return true;
}

void LaneTable::tick(Step step) {
  while (Lane* const lane = quarantine_.take_due(step.now)) {
    auto& unrecorded = lane->closure.unrecorded;
    if (lane->closure.timers == 0 && unrecorded && !unrecorded->is_asked) {
      unrecorded->is_asked = true;
      step.actions.emplace_back(Record{unrecorded->claim, unrecorded->ticket});
    }
    drain_.touch(*lane);
  }
  follow_up(step);
}

bool LaneTable::is_overtaken(const Resource& resource, Token token) const {
  const Lane* lane = book_.find_lane(resource.name());
  if (lane == nullptr) return false;
  const auto& record = lane->view.record;
  return lane->view.highest() > token.value() || (record && record->closed && record->token == token);
}

std::optional<Fault> LaneTable::quarantine(std::string_view name, Time now) const {
  const Lane* lane = book_.find_lane(name);
  const bool is_closed = lane != nullptr ? quarantine_.is_closed(*lane, now) : quarantine_.is_all_closed(now);
  if (!is_closed) return std::nullopt;
  return quarantine_.fault(lane, now);
}

bool LaneTable::is_settled(Time now) const {
  if (drain_.in_flight() > 0 || !quarantine_.is_over(now)) return false;
  bool is_recorded = true;
  book_.for_each_lane([&](const Lane& lane) { is_recorded &= !lane.closure.unrecorded; });
  return is_recorded;
}

// Copies no more names than are asked for, because it is called while nothing else may enter.
std::vector<LaneTable::View> LaneTable::list(const FenceListing& listing, Which which, Time now) const {
  std::vector<const Lane*> first;
  const auto by_name = [](const Lane* a, const Lane* b) { return a->name < b->name; };
  book_.for_each_lane([&](const Lane& lane) {
    if (lane.name <= listing.after || !lane.name.starts_with(listing.prefix)) return;
    const bool is_at_work = which == Which::all && (lane.waiting > 0 || lane.writes.count > 0);
    if (!is_at_work && !lane.closure.is_closed(now)) return;
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
    const Time left = lane->closure.is_closed(now) ? quarantine_.fault(lane, now).retry_after : Time{0};
    views.push_back({lane->name, lane->waiting, lane->writes.count, left});
  }
  return views;
}

LaneTable::Figures LaneTable::figures() const {
  Figures figures{book_.lane_count(), drain_.waiting(), drain_.in_flight(), quarantine_.closed_lanes(),
                  quarantine_.closures()};
  book_.for_each_lane([&](const Lane& lane) { figures.cuts_owed += lane.cut_off.is_pending() ? 1 : 0; });
  return figures;
}

}  // namespace fenceguard::proxy
