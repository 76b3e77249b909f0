#include <fmt/format.h>

#include <algorithm>

#include "server/lane/lane_table.hpp"

namespace fenceguard::proxy {
namespace {

constexpr Time cut_off_pause{1'000};  // after a cut that failed

void move_all(Queue& from, Queue& to) {
  to.splice(to.end(), from);
}

}  // namespace

bool LaneTable::may_enter(const Lane& lane, const Claim& claim) const {
  if (!lane.is_drained(claim)) return false;
  return !claim.sequence || (!lane.has_sequence_in_flight && lane.sequenced.empty());
}

// All claims equal their fences.
void LaneTable::enqueue(Admission& admission, Step step) {
  bool is_crowded = false;
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    const QueueEntry& place = admission.asked(i);
    begin_cut_off(*place.lane, place.claim->resource, step);
  }
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    const QueueEntry& place = admission.asked(i);
    if (is_closed(*place.lane, step.now)) return fail_closed(admission, *place.lane, step);
    if (const auto why = cut_off_fault(*place.lane, step.now)) return fail(admission, *why, step);
    if (may_enter(*place.lane, *place.claim)) ++admission.ready_count;
    is_crowded |= place.lane->waiting > limit(admission.kind, limits_.waiting_per_resource_max);
  }
  if (admission.ready_count == admission.entry_count) return enter(admission, step);
  if (is_crowded && !admission.has_waited) {
    return fail(admission, {FaultKind::unavailable, "too many operations wait for this resource", retry_min},
                step);
  }
  admission.stage = Admission::Stage::waiting;
  admission.has_waited = true;
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    QueueEntry& place = admission.entries[i];
    const bool is_ready = may_enter(*place.lane, *place.claim);
    Lane& lane = *place.lane;
    (place.claim->sequence ? lane.sequenced : is_ready ? lane.ready : lane.draining).push_back(place);
    place.is_ready = is_ready;
  }
  release(admission);
}

// The fence is closed; the writes that entered before must be over.
void LaneTable::enqueue_revoke(Admission& admission, Step step) {
  QueueEntry& place = admission.entries[0];
  Lane& lane = *place.lane;
  begin_cut_off(lane, place.claim->resource, step);
  if (admission.withdrawn) return retire(admission);
  if (is_closed(lane, step.now)) return fail_closed(admission, lane, step);
  if (const auto why = cut_off_fault(lane, step.now)) return fail(admission, *why, step);
  if (lane.in_flight == 0 && lane.pending_fencing == 0) return enter(admission, step);
  admission.stage = Admission::Stage::waiting;
  lane.revokes.push_back(place);
  release(admission);
}

void LaneTable::let_in(Lane& lane, const Claim& claim) {
  ++lane.in_flight;
  ++in_flight_;
  lane.in_flight_token = claim.token.value();
  if (claim.sequence) lane.has_sequence_in_flight = true;
}

// All its entries are ready, at this one instant.
void LaneTable::enter(Admission& admission, Step step) {
  // Its sequence may have taken effect, or been overtaken, while it waited.
  if (admission.kind != Kind::revoke && refuse_if_judged(admission, step)) return;
  EnteredEvent entered{admission.ticket, {}};
  for (std::size_t i = 0; i < admission.entry_count && admission.kind != Kind::revoke; ++i) {
    const Lane& lane = *admission.asked(i).lane;
    entered.rulings.push_back({Verdict::admitted, lane.view.highest(), std::nullopt});
    if (admission.kind == Kind::advance) entered.rulings.back().fence = lane.view.record;
  }
  if (admission.asked_twice) entered.rulings.push_back(entered.rulings.front());
  step.actions.emplace_back(std::move(entered));
  if (admission.kind == Kind::advance || admission.kind == Kind::revoke) return retire(admission);
  end_waiting(admission);
  if (admission.kind == Kind::read) {
    ++admission.entries[0].lane->reads;
    admission.stage = Admission::Stage::reading;
    return;
  }
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    let_in(*admission.entries[i].lane, *admission.entries[i].claim);
  }
  admission.stage = Admission::Stage::in_flight;
}

// The fence has changed: every waiting operation is judged again.
void LaneTable::sweep(Lane& lane, Step step) {
  Queue all;
  for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced}) move_all(*queue, all);
  while (!all.empty()) {
    QueueEntry& place = all.front();
    place.unlink();
    if (lane.verdict(*place.claim) != Verdict::admitted) {
      refuse(*place.admission, place.asked_at, judge(lane.view, *place.claim), step);
    } else {
      (place.claim->sequence ? lane.sequenced : place.is_ready ? lane.ready : lane.draining).push_back(place);
    }
  }
}

// A write's end was not seen.
void LaneTable::close(Lane& lane, Step step) {
  lane.closed_until = step.now + limits_.settle;
  timers_.push_back({lane.closed_until, &lane});
  if (lane.timers++ == 0) ++closed_;
  ++settle_closures_;
  for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced, &lane.revokes}) {
    while (!queue->empty()) fail_closed(*queue->front().admission, lane, step);
  }
  touch(lane);
}

// Once at a time, and after a failure not before a pause is over.
void LaneTable::begin_cut_off(Lane& lane, const Resource& resource, Step step) {
  if (lane.pending_fencing == 0) lane.cut_off_again_at = {};
  if (lane.pending_fencing == 0 || lane.is_cutting_off || step.now < lane.cut_off_again_at) return;
  lane.is_cutting_off = true;
  const Token newest{std::max(lane.view.highest(), lane.pending_fencing)};
  step.actions.emplace_back(CutOff{resource, Token{lane.pending_fencing}, newest});
}

// Why no claim waits for the pending fencing; nothing where it is under way, or none is pending.
std::optional<Fault> LaneTable::cut_off_fault(const Lane& lane, Time now) {
  if (lane.pending_fencing == 0 || lane.is_cutting_off) return std::nullopt;
  return Fault{FaultKind::unavailable,
               "the holder before this one could not be cut off: no fence method has succeeded; the fence "
               "was raised, and nothing is let in until one has",
               std::max(lane.cut_off_again_at - now, Time{1})};
}

void LaneTable::cut_off(const Resource& resource, Token old_token, const Outcome<bool>& outcome, Step step) {
  Lane& lane = *book_.find_lane(resource.name());
  lane.is_cutting_off = false;
  // Fencing that became pending meanwhile is for another holder.
  if (outcome.ok() && lane.pending_fencing <= old_token.value()) lane.pending_fencing = 0;
  const bool is_still_pending = lane.pending_fencing != 0;
  lane.cut_off_again_at = outcome.ok() || !is_still_pending ? Time{} : step.now + cut_off_pause;
  remember(lane, resource);
  if (outcome.ok() && lane.waiting > 0) begin_cut_off(lane, resource, step);
  if (const auto why = cut_off_fault(lane, step.now)) fail_waiting(lane, *why, step);
  touch(lane);
  look_at_touched(step);
}

void LaneTable::fail_waiting(Lane& lane, const Fault& fault, Step step) {
  for (Queue* queue : {&lane.draining, &lane.sequenced, &lane.revokes}) {
    while (!queue->empty()) fail(*queue->front().admission, fault, step);
  }
}

Fault LaneTable::closed_fault(const Lane* lane, Time now) const {
  Time left = std::max((lane != nullptr ? open_at(*lane) : all_closed_until_) - now, Time{0});
  if (lane != nullptr && lane->unrecorded) left = std::max(left, retry_min);
  const bool is_own = lane != nullptr && (lane->unrecorded || lane->closed_until > all_closed_until_);
  constexpr auto own =
      "the end of a write on this resource was not seen: it is quarantined until the settle "
      "time is over";
  constexpr std::string_view all = ": every resource is quarantined until the settle time is over";
  return {FaultKind::unavailable, is_own ? own : fmt::format("{}{}", all_closed_because_, all), left};
}

// What was made durable on the way here stands, and is told.
void LaneTable::fail_closed(Admission& admission, const Lane& lane, Step step) {
  Fault fault = closed_fault(&lane, step.now);
  if (admission.kind == Kind::revoke || admission.has_raised) {
    fault.message += fmt::format("; the fence was {}, and older writes may still be under way until then",
                                 admission.kind == Kind::revoke ? "closed" : "raised to this token");
  }
  fail(admission, std::move(fault), step);
}

// Lets go what may, in the order in which it came.
void LaneTable::dispatch(Lane& lane, Step step) {
  while (lane.in_flight == 0 && lane.pending_fencing == 0 && !lane.revokes.empty())
    enter(*lane.revokes.front().admission, step);
  const auto become_ready = [&](QueueEntry& place) {
    place.is_ready = true;
    Admission& admission = *place.admission;
    if (++admission.ready_count == admission.entry_count) enter(admission, step);
  };
  while (!lane.draining.empty() && lane.is_drained(*lane.draining.front().claim)) {
    QueueEntry& place = lane.draining.front();
    place.unlink();
    lane.ready.push_back(place);
    become_ready(place);
  }
  while (!lane.sequenced.empty() && !lane.has_sequence_in_flight) {
    QueueEntry& place = lane.sequenced.front();
    if (place.is_ready || !lane.is_drained(*place.claim)) break;
    become_ready(place);
  }
}

void LaneTable::look_at(Lane& lane, Step step) {
  dispatch(lane, step);
  if (lane.decider == nullptr && !lane.undecided.empty()) {
    QueueEntry& place = lane.undecided.front();
    place.unlink();
    lane.decider = place.admission;
    ++place.admission->held;
    touch(lane);
    evaluate(*place.admission, step);
  }
}

void LaneTable::look_at_touched(Step step) {
  while (!touched_.empty()) {
    Lane& lane = *touched_.back();
    touched_.pop_back();
    lane.is_touched = false;
    look_at(lane, step);
    if (lane.is_idle() && !lane.is_touched) book_.drop(lane);
  }
}

void LaneTable::touch(Lane& lane) {
  if (lane.is_touched) return;
  lane.is_touched = true;
  touched_.push_back(&lane);
}

void LaneTable::ended(Ticket ticket, Ending ending, Step step) {
  Admission* const found = book_.find_admission(ticket);
  if (found == nullptr || found->stage != Admission::Stage::in_flight) return;
  Admission& admission = *found;
  admission.stage = Admission::Stage::recording;
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    const QueueEntry& place = admission.entries[i];
    if (ending == Ending::unknown) close(*place.lane, step);
    // Past its token the sequence counts no more.
    const bool counts = place.claim->sequence && place.lane->verdict(*place.claim) == Verdict::admitted;
    if (ending != Ending::took_effect || !counts) continue;
    ++admission.store_calls;
    step.actions.emplace_back(Record{*place.claim, ticket});
  }
  if (admission.store_calls == 0) leave(admission, step);
  look_at_touched(step);
}

bool LaneTable::end_at_once(Ticket ticket) {
  Admission* const found = book_.find_admission(ticket);
  if (found == nullptr || found->stage != Admission::Stage::in_flight || found->entry_count != 1)
    return false;
  Lane& lane = *found->entries[0].lane;
  if (found->entries[0].claim->sequence || lane.waiting > 0 || lane.is_contended()) return false;
  --lane.in_flight;
  --in_flight_;
  book_.drop(*found);
  if (lane.is_idle()) book_.drop(lane);
  return true;
}

void LaneTable::recorded(const Claim& claim, Ticket ticket, const Outcome<Ruling>& outcome, Step step) {
  Lane* const found = book_.find_lane(claim.resource.name());
  if (found == nullptr) return;
  Lane& lane = *found;
  const bool is_own = lane.unrecorded && lane.unrecorded->ticket == ticket;
  const bool is_asked_again = is_own && lane.unrecorded->is_asked;
  if (outcome.ok()) {
    if (is_own) lane.unrecorded.reset();
    if (lane.adopt(outcome.value())) sweep(lane, step);
    remember(lane, claim.resource);
  } else {
    // A duplicate of this sequence would enter, so nothing enters until it is recorded.
    lane.unrecorded = Lane::Unrecorded{claim, ticket};
    close(lane, step);
  }
  touch(lane);
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
  look_at_touched(step);
}

// The write is over, or its lanes are closed for it.
void LaneTable::leave(Admission& admission, Step step) {
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    Lane& lane = *admission.entries[i].lane;
    --lane.in_flight;
    --in_flight_;
    if (admission.entries[i].claim->sequence) lane.has_sequence_in_flight = false;
    touch(lane);
  }
  step.actions.emplace_back(LeftEvent{admission.ticket, std::move(admission.fault)});
  book_.drop(admission);
}

void LaneTable::refuse(Admission& admission, std::size_t claim, Ruling ruling, Step step) {
  if (!admission.withdrawn)
    step.actions.emplace_back(RefusedEvent{admission.ticket, claim, std::move(ruling)});
  retire(admission);
}

void LaneTable::fail(Admission& admission, Fault fault, Step step) {
  if (!admission.withdrawn) step.actions.emplace_back(FailedEvent{admission.ticket, std::move(fault)});
  retire(admission);
}

// Its lanes may decide on others.
void LaneTable::release(Admission& admission) {
  for (; admission.held > 0; --admission.held) {
    Lane& lane = *admission.entries[admission.held - 1].lane;
    lane.decider = nullptr;
    touch(lane);
  }
}

void LaneTable::end_waiting(Admission& admission) {
  release(admission);
  --waiting_;
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    QueueEntry& place = admission.entries[i];
    if (place.is_linked()) place.unlink();
    --place.lane->waiting;
    touch(*place.lane);
  }
}

void LaneTable::retire(Admission& admission) {
  end_waiting(admission);
  book_.drop(admission);
}

Ruling LaneTable::judge_read(Ticket ticket) const {
  const QueueEntry& place = book_.find_admission(ticket)->entries[0];
  return judge(place.lane->view, *place.claim);
}

bool LaneTable::is_read_admitted(Ticket ticket) const {
  const QueueEntry& place = book_.find_admission(ticket)->entries[0];
  return place.lane->verdict(*place.claim) == Verdict::admitted;
}

void LaneTable::end_read(Ticket ticket, Step step) {
  Admission* admission = book_.find_admission(ticket);
  if (admission == nullptr || admission->stage != Admission::Stage::reading) return;
  Lane& lane = *admission->entries[0].lane;
  --lane.reads;
  touch(lane);
  book_.drop(*admission);
  look_at_touched(step);
}

bool LaneTable::withdraw(Ticket ticket, Step step) {
  Admission* admission = book_.find_admission(ticket);
  if (admission == nullptr || admission->withdrawn) return false;
  if (admission->stage != Admission::Stage::deciding && admission->stage != Admission::Stage::waiting)
    return false;
  if (admission->store_calls > 0) {
    admission->withdrawn = true;
  } else {
    retire(*admission);
    look_at_touched(step);
  }
  return true;
}

void LaneTable::tick(Step step) {
  while (!timers_.empty() && timers_.front().until <= step.now) {
    Lane& lane = *timers_.front().lane;
    timers_.pop_front();
    if (--lane.timers == 0) --closed_;
    if (lane.timers == 0 && lane.unrecorded && !lane.unrecorded->is_asked) {
      lane.unrecorded->is_asked = true;
      step.actions.emplace_back(Record{lane.unrecorded->claim, lane.unrecorded->ticket});
    }
    touch(lane);
  }
  look_at_touched(step);
}

bool LaneTable::is_overtaken(const Resource& resource, Token token) const {
  const Lane* lane = book_.find_lane(resource.name());
  if (lane == nullptr) return false;
  const auto& record = lane->view.record;
  return lane->view.highest() > token.value() || (record && record->closed && record->token == token);
}

}  // namespace fenceguard::proxy
