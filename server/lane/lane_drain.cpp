#include "server/lane/lane_drain.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fenceguard::proxy {
namespace {

constexpr Time cut_off_pause{1'000};  // after a cut-off that failed

void move_all(Queue& from, Queue& to) {
  to.splice(to.end(), from);
}

// Why no claim waits for the pending fencing; nothing where it is under way, or none is pending.
std::optional<Fault> cut_off_fault(const CutOffState& cut_off, Time now) {
  if (!cut_off.is_pending() || cut_off.is_running) return std::nullopt;
  return Fault{FaultKind::unavailable,
               "the holder before this one could not be cut off: no fence method has succeeded; the fence "
               "was raised, and nothing is let in until one has",
               std::max(cut_off.again_at - now, Time{1})};
}

}  // namespace

void LaneDrain::add_waiting(Admission& admission) {
  ++waiting_;
  for (const QueueEntry& entry : admission.all()) {
    ++entry.lane->waiting;
    touch(*entry.lane);
  }
}

void LaneDrain::enqueue(Admission& admission, Step step) {
  bool is_crowded = false;
  for (const QueueEntry& entry : admission.all()) begin_cut_off(*entry.lane, entry.claim->resource, step);
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    const QueueEntry& entry = admission.asked(i);
    if (fail_if_kept_out(admission, *entry.lane, step)) return;
    if (entry.lane->may_enter(*entry.claim)) ++admission.ready_count;
    is_crowded |= entry.lane->waiting > LaneLimits::room(admission.kind, waiting_per_resource_max_);
  }
  if (admission.ready_count == admission.entry_count) return enter(admission, step);
  if (is_crowded && !admission.has_waited) {
    return fail(admission, {FaultKind::unavailable, "too many operations wait for this resource", retry_min},
                step);
  }
  admission.stage = Admission::Stage::waiting;
  admission.has_waited = true;
  for (QueueEntry& entry : admission.all()) {
    Lane& lane = *entry.lane;
    entry.is_ready = lane.may_enter(*entry.claim);
    (entry.claim->sequence ? lane.sequenced : entry.is_ready ? lane.ready : lane.draining).push_back(entry);
  }
  release(admission);
}

void LaneDrain::enqueue_revoke(Admission& admission, Step step) {
  QueueEntry& entry = admission.entries[0];
  Lane& lane = *entry.lane;
  begin_cut_off(lane, entry.claim->resource, step);
  if (admission.withdrawn) return retire(admission);
  if (fail_if_kept_out(admission, lane, step)) return;
  if (lane.writes.count == 0 && !lane.cut_off.is_pending()) return enter(admission, step);
  admission.stage = Admission::Stage::waiting;
  lane.revokes.push_back(entry);
  release(admission);
}

void LaneDrain::begin_write(Lane& lane, const Claim& claim) {
  ++in_flight_;
  ++lane.writes.count;
  lane.writes.token = claim.token.value();
  if (claim.sequence) lane.writes.has_sequence = true;
}

void LaneDrain::end_write(Lane& lane, const Claim& claim) {
  --in_flight_;
  --lane.writes.count;
  if (claim.sequence) lane.writes.has_sequence = false;
}

// All its entries are ready, at this one instant.
void LaneDrain::enter(Admission& admission, Step step) {
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
  for (const QueueEntry& entry : admission.all()) begin_write(*entry.lane, *entry.claim);
  admission.stage = Admission::Stage::in_flight;
}

void LaneDrain::dispatch(Lane& lane, Step step) {
  while (lane.writes.count == 0 && !lane.cut_off.is_pending() && !lane.revokes.empty())
    enter(*lane.revokes.front().admission, step);
  const auto become_ready = [&](QueueEntry& entry) {
    entry.is_ready = true;
    Admission& admission = *entry.admission;
    if (++admission.ready_count == admission.entry_count) enter(admission, step);
  };
  while (!lane.draining.empty() && lane.is_drained(*lane.draining.front().claim)) {
    QueueEntry& entry = lane.draining.front();
    entry.unlink();
    lane.ready.push_back(entry);
    become_ready(entry);
  }
  while (!lane.sequenced.empty() && !lane.writes.has_sequence) {
    QueueEntry& entry = lane.sequenced.front();
    if (entry.is_ready || !lane.is_drained(*entry.claim)) break;
    become_ready(entry);
  }
}

void LaneDrain::judge_waiting(Lane& lane, Step step) {
  Queue all;
  for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced}) move_all(*queue, all);
  while (!all.empty()) {
    QueueEntry& entry = all.front();
    entry.unlink();
    if (lane.verdict(*entry.claim) != Verdict::admitted) {
      refuse(*entry.admission, entry.asked_at, judge(lane.view, *entry.claim), step);
    } else {
      (entry.claim->sequence ? lane.sequenced : entry.is_ready ? lane.ready : lane.draining).push_back(entry);
    }
  }
}

// A revoke waits for writes alone, whatever the fence is.
std::vector<Admission*> LaneDrain::take_waiting() {
  std::vector<Admission*> waiting;
  book_.for_each_lane([&](Lane& lane) {
    for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced}) {
      while (!queue->empty()) {
        QueueEntry& entry = queue->front();
        entry.unlink();
        entry.is_ready = false;
        Admission& admission = *entry.admission;
        if (admission.stage == Admission::Stage::deciding) continue;  // a pair's other entry
        admission.stage = Admission::Stage::deciding;
        admission.ready_count = 0;
        waiting.push_back(&admission);
      }
    }
  });
  std::sort(waiting.begin(), waiting.end(), [](auto* a, auto* b) { return a->ticket < b->ticket; });
  return waiting;
}

void LaneDrain::fail_waiting(Lane& lane, const Fault& fault, Step step) {
  for (Queue* queue : {&lane.draining, &lane.sequenced, &lane.revokes}) {
    while (!queue->empty()) fail(*queue->front().admission, fault, step);
  }
}

void LaneDrain::close(Lane& lane, Step step) {
  quarantine_.close(lane, step.now);
  for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced, &lane.revokes}) {
    while (!queue->empty()) fail_closed(*queue->front().admission, lane, step);
  }
  touch(lane);
}

// One at a time, and after a failure not before a pause is over.
void LaneDrain::begin_cut_off(Lane& lane, const Resource& resource, Step step) {
  CutOffState& state = lane.cut_off;
  if (!state.is_pending()) state.again_at = {};
  if (!state.is_pending() || state.is_running || step.now < state.again_at) return;
  state.is_running = true;
  const Token newest{std::max(lane.view.highest(), state.old_token)};
  step.actions.emplace_back(CutOff{resource, Token{state.old_token}, newest});
}

void LaneDrain::cut_off(Lane& lane, const Resource& resource, Token old_token, bool is_done, Step step) {
  CutOffState& state = lane.cut_off;
  state.is_running = false;
  // What became pending meanwhile is another holder's.
  if (is_done && state.old_token <= old_token.value()) state.old_token = 0;
  state.again_at = is_done || !state.is_pending() ? Time{} : step.now + cut_off_pause;
  fences_.cache(lane, resource);
  if (is_done && lane.waiting > 0) begin_cut_off(lane, resource, step);
  if (const auto why = cut_off_fault(state, step.now)) fail_waiting(lane, *why, step);
  touch(lane);
}

bool LaneDrain::fail_if_kept_out(Admission& admission, const Lane& lane, Step step) {
  if (quarantine_.is_closed(lane, step.now)) {
    fail_closed(admission, lane, step);
  } else if (auto why = cut_off_fault(lane.cut_off, step.now)) {
    fail(admission, *std::move(why), step);
  } else {
    return false;
  }
  return true;
}

// What was made durable on the way here stands, and is told.
void LaneDrain::fail_closed(Admission& admission, const Lane& lane, Step step) {
  Fault fault = quarantine_.fault(&lane, step.now);
  if (admission.kind == Kind::revoke || admission.has_raised) {
    fault.message += fmt::format("; the fence was {}, and older writes may still be under way until then",
                                 admission.kind == Kind::revoke ? "closed" : "raised to this token");
  }
  fail(admission, std::move(fault), step);
}

bool LaneDrain::refuse_if_judged(Admission& admission, Step step) {
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    const QueueEntry& entry = admission.asked(i);
    if (entry.lane->verdict(*entry.claim) == Verdict::admitted) continue;
    refuse(admission, i, judge(entry.lane->view, *entry.claim), step);
    return true;
  }
  return false;
}

void LaneDrain::refuse(Admission& admission, std::size_t claim, Ruling ruling, Step step) {
  if (!admission.withdrawn)
    step.actions.emplace_back(RefusedEvent{admission.ticket, claim, std::move(ruling)});
  retire(admission);
}

void LaneDrain::fail(Admission& admission, Fault fault, Step step) {
  if (!admission.withdrawn) step.actions.emplace_back(FailedEvent{admission.ticket, std::move(fault)});
  retire(admission);
}

void LaneDrain::retire(Admission& admission) {
  end_waiting(admission);
  book_.drop(admission);
}

void LaneDrain::end_waiting(Admission& admission) {
  release(admission);
  --waiting_;
  for (QueueEntry& entry : admission.all()) {
    if (entry.is_linked()) entry.unlink();
    --entry.lane->waiting;
    touch(*entry.lane);
  }
}

// Its lanes may decide on others.
void LaneDrain::release(Admission& admission) {
  for (; admission.held > 0; --admission.held) {
    Lane& lane = *admission.entries[admission.held - 1].lane;
    lane.decider = nullptr;
    touch(lane);
  }
}

void LaneDrain::touch(Lane& lane) {
  if (lane.is_touched) return;
  lane.is_touched = true;
  touched_.push_back(&lane);
}

Lane* LaneDrain::take_touched() {
  if (touched_.empty()) return nullptr;
  Lane* const lane = touched_.back();
  touched_.pop_back();
  lane->is_touched = false;
  return lane;
}

}  // namespace fenceguard::proxy
