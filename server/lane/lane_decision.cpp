#include "server/lane/lane_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace fenceguard::proxy {
namespace {

constexpr Time try_again_after{1'000};

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

Fault crowded() {
  return {FaultKind::unavailable, "too many operations wait to be let in: try again later", try_again_after};
}

}  // namespace

void LaneTable::ask(Ask&& ask, Step step) {
  if (const char* problem = objection(ask)) {
    step.actions.emplace_back(FailedEvent{ask.ticket, {FaultKind::invalid_input, problem}});
    return;
  }
  if (ask.kind != Kind::write) ask.claims[0].sequence.reset();  // what writes nothing uses up no number
  if (decide_at_once(ask, step)) return;

  Admission& admission = book_.make_admission(std::move(ask));
  bool is_crowded = ++waiting_ > limit(admission.kind, limits_.waiting_max);
  const std::size_t lane_max = limit(admission.kind, limits_.waiting_per_resource_max);
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    Lane& lane = *admission.entries[i].lane;
    is_crowded |= ++lane.waiting > lane_max && lane.is_contended();
    touch(lane);
  }
  if (is_crowded) {
    fail(admission, crowded(), step);
  } else {
    evaluate(admission, step);
  }
  look_at_touched(step);
}

// A crowd of claims must not keep out an advance or a revoke: for these there is as much room again.
std::size_t LaneTable::limit(Kind kind, std::size_t waiting_max) noexcept {
  const bool has_reserve = kind == Kind::advance || kind == Kind::revoke;
  return has_reserve ? waiting_max + std::min(waiting_max, SIZE_MAX - waiting_max) : waiting_max;
}

// The way of nearly every operation: nothing to look up, to raise or to wait for.
bool LaneTable::decide_at_once(Ask& ask, Step step) {
  const bool is_single = ask.claims.size() == 1 || ask.claims[0] == ask.claims[1];
  if (!is_single || ask.kind == Kind::revoke) return false;
  const Claim& claim = ask.claims[0];
  Lane& lane = book_.lane(claim.resource.name());
  if (lane.is_contended() || lane.pending_fencing != 0 || !is_known(lane, claim.resource)) return false;
  const Verdict verdict = lane.verdict(claim);
  if (verdict != Verdict::admitted) {
    step.actions.emplace_back(RefusedEvent{ask.ticket, 0, judge(lane.view, claim)});
  } else if (claim.token.value() > lane.view.highest()) {
    return false;
  } else if (is_closed(lane, step.now)) {
    step.actions.emplace_back(FailedEvent{ask.ticket, closed_fault(&lane, step.now)});
  } else if (!may_enter(lane, claim)) {
    return false;
  } else {
    Ruling ruling{Verdict::admitted, lane.view.highest(), std::nullopt};
    if (ask.kind == Kind::advance) ruling.fence = lane.view.record;
    auto& entered = std::get<EnteredEvent>(step.actions.emplace_back(EnteredEvent{ask.ticket, {}}));
    entered.rulings.assign(ask.claims.size(), std::move(ruling));
    if (ask.kind == Kind::write) {
      let_in(lane, claim);
      book_.make_admission(std::move(ask)).stage = Admission::Stage::in_flight;
    } else if (ask.kind == Kind::read) {
      ++lane.reads;
      book_.make_admission(std::move(ask)).stage = Admission::Stage::reading;
    }
  }
  if (lane.is_idle()) book_.drop(lane);
  return true;
}

std::optional<std::int64_t> LaneTable::enter_at_once(Ticket ticket, Kind kind, const Claim& claim, Time now) {
  Lane* lane = book_.find_lane(claim.resource.name());
  if (lane == nullptr && now < all_closed_until_) return std::nullopt;
  if (lane != nullptr &&
      (lane->is_contended() || lane->waiting > 0 || is_closed(*lane, now) || !lane->is_drained(claim)))
    return std::nullopt;
  Verdict verdict{};
  std::int64_t highest = 0;
  if (lane != nullptr && lane->is_known) {
    verdict = lane->verdict(claim);
    highest = lane->view.highest();
  } else if (const auto answer = remembered_.ask(claim, 0)) {
    // The floor was below it, and rises by what makes everything forgotten.
    verdict = answer->verdict;
    highest = answer->highest;
  } else {
    return std::nullopt;
  }
  if (verdict != Verdict::admitted || claim.token.value() != highest) return std::nullopt;
  if (lane == nullptr) lane = &book_.lane(claim.resource.name());
  // A write needs its lane's fence no more; a read is judged by it again.
  if (kind == Kind::read) (void)is_known(*lane, claim.resource);
  if (kind == Kind::write) {
    let_in(*lane, claim);
  } else {
    ++lane->reads;
  }
  book_.make_admission(ticket, kind, claim, *lane).stage =
      kind == Kind::write ? Admission::Stage::in_flight : Admission::Stage::reading;
  return highest;
}

bool LaneTable::is_known(Lane& lane, const Resource& resource) {
  if (lane.is_known) return true;
  auto fence = remembered_.find(resource);
  if (!fence) return false;
  // The floor was below it, and rises by what makes everything forgotten.
  (void)lane.adopt(FenceView{std::move(fence), 0});
  lane.is_known = true;
  return true;
}

// Takes its lanes' decisions one after the other, in the order of their names, so that crossing pairs cannot
// wait for each other.
void LaneTable::evaluate(Admission& admission, Step step) {
  while (admission.held < admission.entry_count) {
    QueueEntry& place = admission.entries[admission.held];
    if (place.lane->is_contended()) {
      place.lane->undecided.push_back(place);
      return;
    }
    place.lane->decider = &admission;
    ++admission.held;
  }
  decide(admission, step);
}

void LaneTable::decide(Admission& admission, Step step) {
  if (admission.withdrawn) return retire(admission);
  if (admission.fault) return fail(admission, *std::move(admission.fault), step);
  if (admission.refusal) {
    return refuse(admission, admission.refusal->claim, std::move(admission.refusal->ruling), step);
  }
  if (load_unknown(admission, step)) return;
  if (admission.kind == Kind::revoke) {
    Lane& lane = *admission.entries[0].lane;
    lane.generation = generation_;
    admission.store_calls = 1;
    step.actions.emplace_back(Close{admission.entries[0].claim->resource, admission.ticket});
    return;
  }
  if (refuse_if_judged(admission, step)) return;
  if (raise_lower(admission, step)) return;
  enqueue(admission, step);
}

bool LaneTable::load_unknown(Admission& admission, Step step) {
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    QueueEntry& place = admission.entries[i];
    if (is_known(*place.lane, place.claim->resource)) continue;
    place.lane->generation = generation_;
    ++admission.store_calls;
    step.actions.emplace_back(Load{place.claim->resource});
  }
  return admission.store_calls > 0;
}

// Both claims are judged before either moves anything.
bool LaneTable::refuse_if_judged(Admission& admission, Step step) {
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    const QueueEntry& place = admission.asked(i);
    if (place.lane->verdict(*place.claim) == Verdict::admitted) continue;
    refuse(admission, i, judge(place.lane->view, *place.claim), step);
    return true;
  }
  return false;
}

bool LaneTable::raise_lower(Admission& admission, Step step) {
  for (std::size_t i = 0; i < admission.entry_count; ++i) {
    QueueEntry& place = admission.entries[i];
    if (place.claim->token.value() <= place.lane->view.highest()) continue;
    place.lane->generation = generation_;
    ++admission.store_calls;
    std::optional<Claim> other;
    if (admission.entry_count == 2) other = admission.entries[1 - i].claim->without_sequence();
    step.actions.emplace_back(Raise{place.claim->without_sequence(), std::move(other)});
  }
  return admission.store_calls > 0;
}

void LaneTable::answered(Admission& admission, Step step) {
  if (--admission.store_calls == 0) decide(admission, step);
}

void LaneTable::loaded(const Resource& resource, const Outcome<FenceView>& outcome, Step step,
                       std::int64_t pending) {
  Lane& lane = *book_.find_lane(resource.name());
  Admission& admission = *lane.decider;
  if (outcome.ok()) {
    lane.pending_fencing = pending;
    adopt(lane, resource, outcome.value(), step);
  } else {
    admission.fault = of_fence(admission.kind, outcome.fault());
  }
  answered(admission, step);
  look_at_touched(step);
}

void LaneTable::raised(const Claim& claim, const Outcome<Ruling>& outcome, Step step, std::int64_t pending) {
  Lane& lane = *book_.find_lane(claim.resource.name());
  Admission& admission = *lane.decider;
  if (!outcome.ok()) {
    lose(lane, admission, outcome.fault(), step);
  } else {
    const Ruling& ruling = outcome.value();
    lane.pending_fencing = pending;
    adopt(lane, claim.resource, FenceView{ruling.fence, 0}, step);
    if (ruling.verdict == Verdict::admitted) {
      admission.has_raised = true;
    } else {
      // The store knows more than was known here: a floor, perhaps.
      lane.is_known = false;
      remembered_.erase(claim.resource);
      const QueueEntry& place =
          admission.entries[0].lane == &lane ? admission.entries[0] : admission.entries[1];
      admission.refusal = RefusedEvent{admission.ticket, place.asked_at, ruling};
    }
  }
  answered(admission, step);
  look_at_touched(step);
}

void LaneTable::closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome, Step step,
                       std::int64_t pending) {
  Lane& lane = *book_.find_lane(resource.name());
  Admission& admission = *book_.find_admission(ticket);
  admission.store_calls = 0;
  if (!outcome.ok()) {
    lose(lane, admission, outcome.fault(), step);
    decide(admission, step);
  } else {
    lane.pending_fencing = pending;
    adopt(lane, resource, outcome.value(), step);
    enqueue_revoke(admission, step);
  }
  look_at_touched(step);
}

// Now durable.
void LaneTable::adopt(Lane& lane, const Resource& resource, const FenceView& found, Step step) {
  const bool changed = lane.adopt(found);
  lane.is_known = lane.generation == generation_;
  remember(lane, resource);
  if (changed) sweep(lane, step);
}

// What is remembered is taken for the whole: a record below the floor is not, nor one beside which a cut is
// owed.
void LaneTable::remember(const Lane& lane, const Resource& resource) {
  const auto& record = lane.view.record;
  if (lane.is_known && lane.pending_fencing == 0 && record && record->token.value() >= lane.view.floor) {
    remembered_.put(resource, *record);
  } else {
    remembered_.erase(resource);
  }
}

// The store may hold more than what is known here.
void LaneTable::lose(Lane& lane, Admission& admission, const Fault& fault, Step step) {
  lane.is_known = false;
  remembered_.erase(Resource{lane.name});
  admission.fault = of_fence(admission.kind, fault);
  // Where the store has gone on, what it says is owed once this cut is settled does not count those that
  // wait.
  if (lane.pending_fencing != 0)
    fail_waiting(lane, {FaultKind::unavailable, "what the fence is now is not known", retry_min}, step);
}

// A revoke waits for writes alone, whatever the fence is.
std::vector<Admission*> LaneTable::take_waiting() {
  std::vector<Admission*> waiting;
  book_.for_each_lane([&](Lane& lane) {
    for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced}) {
      while (!queue->empty()) {
        QueueEntry& place = queue->front();
        place.unlink();
        place.is_ready = false;
        Admission& admission = *place.admission;
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

void LaneTable::forget_fences(Step step) {
  ++generation_;
  remembered_.clear();
  // Operations that had waited longer are decided on first: the others' numbers may be higher.
  std::vector<std::pair<Lane*, Queue>> behind;
  book_.for_each_lane([&](Lane& lane) {
    lane.is_known = false;
    if (!lane.undecided.empty()) behind.emplace_back(&lane, std::move(lane.undecided));
  });
  for (Admission* admission : take_waiting()) evaluate(*admission, step);
  for (auto& [lane, queue] : behind) lane->undecided.splice(lane->undecided.end(), queue);
  look_at_touched(step);
}

}  // namespace fenceguard::proxy
