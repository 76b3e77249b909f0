#include "server/lane/lane_admission.hpp"

#include <fmt/format.h>

#include <utility>

namespace fenceguard::proxy {
namespace {

// What is wrong with an ask, or nothing.
const char* objection(const Ask& ask) {
  if (ask.claims.empty() || ask.claims.size() > 2) return "an operation has one claim, or two";
  if (ask.claims.size() == 1) return nullptr;
  if (ask.kind != Kind::write) return "only a write may have two claims";
  if (ask.claims[0].resource == ask.claims[1].resource && ask.claims[0] != ask.claims[1])
    return "two claims on one resource must be the same claim";
  return nullptr;
}

// Nothing was forwarded yet: for a write or a read, only what became of the fence is not known.
Fault of_fence(Kind kind, Fault fault) {
  if (fault.kind != FaultKind::unknown || (kind != Kind::write && kind != Kind::read)) return fault;
  fault.kind = FaultKind::unavailable;
  fault.message = fmt::format("nothing was forwarded, but the fence may have been raised: {}", fault.message);
  return fault;
}

}  // namespace

void LaneAdmission::ask(Ask&& ask, Step step) {
  if (const char* problem = objection(ask)) {
    step.actions.emplace_back(FailedEvent{ask.ticket, {FaultKind::invalid_input, problem}});
    return;
  }
  if (ask.kind != Kind::write) ask.claims[0].sequence.reset();  // what writes nothing uses up no number
  if (decide_at_once(ask, step)) return;

  Admission& admission = book_.make_admission(std::move(ask));
  drain_.add_waiting(admission);
  bool is_crowded = drain_.waiting() > LaneLimits::room(admission.kind, limits_.waiting_max);
  const std::size_t lane_max = LaneLimits::room(admission.kind, limits_.waiting_per_resource_max);
  for (const QueueEntry& entry : admission.all())
    is_crowded |= entry.lane->waiting > lane_max && entry.lane->is_contended();
  if (!is_crowded) return take_lanes(admission, step);
  drain_.fail(admission,
              {FaultKind::unavailable, "too many operations wait to be let in: try again later", retry_min},
              step);
}

// The way of nearly every operation: nothing to look up, to raise or to wait for.
bool LaneAdmission::decide_at_once(Ask& ask, Step step) {
  const bool is_single = ask.claims.size() == 1 || ask.claims[0] == ask.claims[1];
  if (!is_single || ask.kind == Kind::revoke) return false;
  const Claim& claim = ask.claims[0];
  Lane& lane = book_.lane(claim.resource.name());
  if (lane.is_contended() || lane.cut_off.is_pending() || !fences_.find(lane, claim.resource)) return false;
  const Verdict verdict = lane.verdict(claim);
  if (verdict != Verdict::admitted) {
    step.actions.emplace_back(RefusedEvent{ask.ticket, 0, judge(lane.view, claim)});
  } else if (claim.token.value() > lane.view.highest()) {
    return false;
  } else if (quarantine_.is_closed(lane, step.now)) {
    step.actions.emplace_back(FailedEvent{ask.ticket, quarantine_.fault(&lane, step.now)});
  } else if (!lane.may_enter(claim)) {
    return false;
  } else {
    Ruling ruling{Verdict::admitted, lane.view.highest(), std::nullopt};
    if (ask.kind == Kind::advance) ruling.fence = lane.view.record;
    auto& entered = std::get<EnteredEvent>(step.actions.emplace_back(EnteredEvent{ask.ticket, {}}));
    entered.rulings.assign(ask.claims.size(), std::move(ruling));
    if (ask.kind == Kind::write) {
      drain_.begin_write(lane, claim);
      book_.make_admission(std::move(ask)).stage = Admission::Stage::in_flight;
    } else if (ask.kind == Kind::read) {
      ++lane.reads;
      book_.make_admission(std::move(ask)).stage = Admission::Stage::reading;
    }
  }
  if (lane.is_idle()) book_.drop(lane);
  return true;
}

std::optional<std::int64_t> LaneAdmission::enter_at_once(Ticket ticket, Kind kind, const Claim& claim,
                                                         Time now) {
  Lane* lane = book_.find_lane(claim.resource.name());
  if (lane == nullptr && quarantine_.is_all_closed(now)) return std::nullopt;
  if (lane != nullptr && (lane->is_contended() || lane->waiting > 0 || quarantine_.is_closed(*lane, now) ||
                          !lane->is_drained(claim)))
    return std::nullopt;
  Verdict verdict{};
  std::int64_t highest = 0;
  if (lane != nullptr && lane->is_known) {
    verdict = lane->verdict(claim);
    highest = lane->view.highest();
  } else if (const auto answer = fences_.judge(claim)) {
    verdict = answer->verdict;
    highest = answer->highest;
  } else {
    return std::nullopt;
  }
  if (verdict != Verdict::admitted || claim.token.value() != highest) return std::nullopt;
  if (lane == nullptr) lane = &book_.lane(claim.resource.name());
  // A write needs its lane's fence no more; a read is judged by it again.
  if (kind == Kind::read) (void)fences_.find(*lane, claim.resource);
  if (kind == Kind::write) {
    drain_.begin_write(*lane, claim);
  } else {
    ++lane->reads;
  }
  book_.make_admission(ticket, kind, claim, *lane).stage =
      kind == Kind::write ? Admission::Stage::in_flight : Admission::Stage::reading;
  return highest;
}

// Its lanes' decisions, one after the other.
void LaneAdmission::take_lanes(Admission& admission, Step step) {
  while (admission.held < admission.entry_count) {
    QueueEntry& entry = admission.entries[admission.held];
    if (entry.lane->is_contended()) {
      entry.lane->undecided.push_back(entry);
      return;
    }
    entry.lane->decider = &admission;
    ++admission.held;
  }
  decide(admission, step);
}

void LaneAdmission::decide_next(Lane& lane, Step step) {
  if (lane.decider != nullptr || lane.undecided.empty()) return;
  QueueEntry& entry = lane.undecided.front();
  entry.unlink();
  lane.decider = entry.admission;
  ++entry.admission->held;
  drain_.touch(lane);
  take_lanes(*entry.admission, step);
}

void LaneAdmission::decide(Admission& admission, Step step) {
  if (admission.withdrawn) return drain_.retire(admission);
  if (admission.fault) return drain_.fail(admission, *std::move(admission.fault), step);
  if (admission.refusal) {
    return drain_.refuse(admission, admission.refusal->claim, std::move(admission.refusal->ruling), step);
  }
  if (load_unknown(admission, step)) return;
  if (admission.kind == Kind::revoke) {
    fences_.asked(*admission.entries[0].lane);
    admission.store_calls = 1;
    step.actions.emplace_back(Close{admission.entries[0].claim->resource, admission.ticket});
    return;
  }
  // Both claims are judged before either moves anything.
  if (drain_.refuse_if_judged(admission, step)) return;
  if (raise_lower(admission, step)) return;
  drain_.enqueue(admission, step);
}

bool LaneAdmission::load_unknown(Admission& admission, Step step) {
  for (const QueueEntry& entry : admission.all()) {
    if (fences_.find(*entry.lane, entry.claim->resource)) continue;
    fences_.asked(*entry.lane);
    ++admission.store_calls;
    step.actions.emplace_back(Load{entry.claim->resource});
  }
  return admission.store_calls > 0;
}

bool LaneAdmission::raise_lower(Admission& admission, Step step) {
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    const QueueEntry& entry = admission.entries[i];
    if (entry.claim->token.value() <= entry.lane->view.highest()) continue;
    fences_.asked(*entry.lane);
    ++admission.store_calls;
    std::optional<Claim> other;
    if (admission.entry_count == 2) other = admission.entries[1 - i].claim->without_sequence();
    step.actions.emplace_back(Raise{entry.claim->without_sequence(), std::move(other)});
  }
  return admission.store_calls > 0;
}

void LaneAdmission::answered(Admission& admission, Step step) {
  if (--admission.store_calls == 0) decide(admission, step);
}

void LaneAdmission::loaded(const Resource& resource, const Outcome<FenceView>& outcome, Step step,
                           std::int64_t pending) {
  Lane& lane = *book_.find_lane(resource.name());
  Admission& admission = *lane.decider;
  if (outcome.ok()) {
    adopt(lane, resource, outcome.value(), pending, step);
  } else {
    admission.fault = of_fence(admission.kind, outcome.fault());
  }
  answered(admission, step);
}

void LaneAdmission::raised(const Claim& claim, const Outcome<Ruling>& outcome, Step step,
                           std::int64_t pending) {
  Lane& lane = *book_.find_lane(claim.resource.name());
  Admission& admission = *lane.decider;
  if (!outcome.ok()) {
    lose(lane, admission, outcome.fault(), step);
  } else {
    const Ruling& ruling = outcome.value();
    adopt(lane, claim.resource, FenceView{ruling.fence, 0}, pending, step);
    if (ruling.verdict == Verdict::admitted) {
      admission.has_raised = true;
    } else {
      // The store knows more than was known here: a floor, perhaps.
      fences_.forget(lane);
      const QueueEntry& entry = admission.entries[admission.entries[0].lane == &lane ? 0 : 1];
      admission.refusal = RefusedEvent{admission.ticket, entry.asked_at, ruling};
    }
  }
  answered(admission, step);
}

void LaneAdmission::closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome,
                           Step step, std::int64_t pending) {
  Lane& lane = *book_.find_lane(resource.name());
  Admission& admission = *book_.find_admission(ticket);
  if (outcome.ok()) {
    admission.store_calls = 0;
    adopt(lane, resource, outcome.value(), pending, step);
    drain_.enqueue_revoke(admission, step);
  } else {
    lose(lane, admission, outcome.fault(), step);
    answered(admission, step);
  }
}

// Now durable.
void LaneAdmission::adopt(Lane& lane, const Resource& resource, const FenceView& found, std::int64_t pending,
                          Step step) {
  lane.cut_off.old_token = pending;
  if (fences_.adopt(lane, resource, found)) drain_.judge_waiting(lane, step);
}

// The store may hold more than what is known here.
void LaneAdmission::lose(Lane& lane, Admission& admission, const Fault& fault, Step step) {
  fences_.forget(lane);
  admission.fault = of_fence(admission.kind, fault);
  // Where the store has gone on, what is pending there once this cut-off is settled does not cover those that
  // wait here.
  if (lane.cut_off.is_pending())
    drain_.fail_waiting(lane, {FaultKind::unavailable, "what the fence is now is not known", retry_min},
                        step);
}

void LaneAdmission::forget_fences(Step step) {
  fences_.forget_all();
  // Operations that had waited longer are decided on first: the others' numbers may be higher.
  std::vector<std::pair<Lane*, Queue>> behind;
  book_.for_each_lane([&](Lane& lane) {
    lane.is_known = false;
    if (!lane.undecided.empty()) behind.emplace_back(&lane, std::move(lane.undecided));
  });
  for (Admission* admission : drain_.take_waiting()) take_lanes(*admission, step);
  for (auto& [lane, queue] : behind) lane->undecided.splice(lane->undecided.end(), queue);
}

}  // namespace fenceguard::proxy
