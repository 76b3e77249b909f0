#include "adapters/http/lane_rule.hpp"

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

// Nothing was forwarded yet: to who wanted to write or to read, only what became of the fence is not known.
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

void LaneTable::Impl::ask(Ask&& ask, Turn turn) {
  if (const char* problem = objection(ask)) {
    turn.actions.emplace_back(Failed{ask.ticket, {FaultKind::invalid_input, problem}});
    return;
  }
  if (ask.kind != Kind::write) ask.claims[0].sequence.reset();  // what writes nothing uses up no number
  if (decide_at_once(ask, turn)) return;

  Passage& passage = book_.make_passage(std::move(ask));
  bool is_crowded = ++waiting_ > limit(passage.kind, limits_.waiting_max);
  const std::size_t lane_max = limit(passage.kind, limits_.waiting_per_resource_max);
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    Lane& lane = *passage.places[i].lane;
    is_crowded |= ++lane.waiting > lane_max && lane.is_contended();
    touch(lane);
  }
  if (is_crowded) {
    fail(passage, crowded(), turn);
  } else {
    take_up(passage, turn);
  }
  look_at_touched(turn);
}

// A crowd of claims must not keep out who takes over or cuts off: for these there is as much room again.
std::size_t LaneTable::Impl::limit(Kind kind, std::size_t waiting_max) noexcept {
  const bool has_reserve = kind == Kind::advance || kind == Kind::revoke;
  return has_reserve ? waiting_max + std::min(waiting_max, SIZE_MAX - waiting_max) : waiting_max;
}

// The way of nearly every operation: nothing to look up, to raise or to wait for.
bool LaneTable::Impl::decide_at_once(Ask& ask, Turn turn) {
  const bool is_single = ask.claims.size() == 1 || ask.claims[0] == ask.claims[1];
  if (!is_single || ask.kind == Kind::revoke) return false;
  const Claim& claim = ask.claims[0];
  Lane& lane = book_.lane(claim.resource.name());
  if (lane.is_contended() || !is_known(lane, claim.resource)) return false;
  const Verdict verdict = lane.verdict(claim);
  if (verdict != Verdict::admitted) {
    turn.actions.emplace_back(Refused{ask.ticket, 0, judge(lane.view, claim)});
  } else if (claim.token.value() > lane.view.highest()) {
    return false;
  } else if (is_closed(lane, turn.now)) {
    turn.actions.emplace_back(Failed{ask.ticket, closed_fault(&lane, turn.now)});
  } else if (!may_enter(lane, claim)) {
    return false;
  } else {
    Ruling ruling{Verdict::admitted, lane.view.highest(), std::nullopt};
    if (ask.kind == Kind::advance) ruling.fence = lane.view.record;
    auto& entered = std::get<Entered>(turn.actions.emplace_back(Entered{ask.ticket, {}}));
    entered.rulings.assign(ask.claims.size(), std::move(ruling));
    if (ask.kind == Kind::write) {
      let_in(lane, claim);
      book_.make_passage(std::move(ask)).stage = Passage::Stage::in_flight;
    } else if (ask.kind == Kind::read) {
      ++lane.reads;
      book_.make_passage(std::move(ask)).stage = Passage::Stage::reading;
    }
  }
  if (lane.is_idle()) book_.drop(lane);
  return true;
}

bool LaneTable::Impl::is_known(Lane& lane, const Resource& resource) {
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
void LaneTable::Impl::take_up(Passage& passage, Turn turn) {
  while (passage.held < passage.place_count) {
    Place& place = passage.places[passage.held];
    if (place.lane->is_contended()) {
      place.lane->undecided.push_back(place);
      return;
    }
    place.lane->decider = &passage;
    ++passage.held;
  }
  decide(passage, turn);
}

void LaneTable::Impl::decide(Passage& passage, Turn turn) {
  if (passage.withdrawn) return retire(passage);
  if (passage.fault) return fail(passage, *std::move(passage.fault), turn);
  if (passage.refusal) {
    return refuse(passage, passage.refusal->claim, std::move(passage.refusal->ruling), turn);
  }
  if (load_unknown(passage, turn)) return;
  if (passage.kind == Kind::revoke) {
    Lane& lane = *passage.places[0].lane;
    lane.generation = generation_;
    passage.store_calls = 1;
    turn.actions.emplace_back(Close{passage.places[0].claim->resource, passage.ticket});
    return;
  }
  if (refuse_if_judged(passage, turn)) return;
  if (raise_lower(passage, turn)) return;
  line_up(passage, turn);
}

bool LaneTable::Impl::load_unknown(Passage& passage, Turn turn) {
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    Place& place = passage.places[i];
    if (is_known(*place.lane, place.claim->resource)) continue;
    place.lane->generation = generation_;
    ++passage.store_calls;
    turn.actions.emplace_back(Load{place.claim->resource});
  }
  return passage.store_calls > 0;
}

// Both claims are judged before either moves anything.
bool LaneTable::Impl::refuse_if_judged(Passage& passage, Turn turn) {
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    const Place& place = passage.asked(i);
    if (place.lane->verdict(*place.claim) == Verdict::admitted) continue;
    refuse(passage, i, judge(place.lane->view, *place.claim), turn);
    return true;
  }
  return false;
}

bool LaneTable::Impl::raise_lower(Passage& passage, Turn turn) {
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    Place& place = passage.places[i];
    if (place.claim->token.value() <= place.lane->view.highest()) continue;
    place.lane->generation = generation_;
    ++passage.store_calls;
    std::optional<Claim> other;
    if (passage.place_count == 2) other = passage.places[1 - i].claim->without_sequence();
    turn.actions.emplace_back(Raise{place.claim->without_sequence(), std::move(other)});
  }
  return passage.store_calls > 0;
}

void LaneTable::Impl::answered(Passage& passage, Turn turn) {
  if (--passage.store_calls == 0) decide(passage, turn);
}

void LaneTable::Impl::loaded(const Resource& resource, const Outcome<FenceView>& outcome, Turn turn) {
  Lane& lane = *book_.find_lane(resource.name());
  Passage& passage = *lane.decider;
  if (outcome.ok()) {
    adopt(lane, resource, outcome.value(), turn);
  } else {
    passage.fault = of_fence(passage.kind, outcome.fault());
  }
  answered(passage, turn);
  look_at_touched(turn);
}

void LaneTable::Impl::raised(const Claim& claim, const Outcome<Ruling>& outcome, Turn turn) {
  Lane& lane = *book_.find_lane(claim.resource.name());
  Passage& passage = *lane.decider;
  if (!outcome.ok()) {
    lose(lane, passage, claim.resource, outcome.fault());
  } else {
    const Ruling& ruling = outcome.value();
    adopt(lane, claim.resource, FenceView{ruling.fence, 0}, turn);
    if (ruling.verdict == Verdict::admitted) {
      passage.has_raised = true;
    } else {
      // The store knows more than was known here: a floor, perhaps.
      lane.is_known = false;
      remembered_.erase(claim.resource);
      const Place& place = passage.places[0].lane == &lane ? passage.places[0] : passage.places[1];
      passage.refusal = Refused{passage.ticket, place.asked_at, ruling};
    }
  }
  answered(passage, turn);
  look_at_touched(turn);
}

void LaneTable::Impl::closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome,
                             Turn turn) {
  Lane& lane = *book_.find_lane(resource.name());
  Passage& passage = *book_.find_passage(ticket);
  passage.store_calls = 0;
  if (!outcome.ok()) {
    lose(lane, passage, resource, outcome.fault());
    decide(passage, turn);
  } else {
    adopt(lane, resource, outcome.value(), turn);
    line_up_revoke(passage, turn);
  }
  look_at_touched(turn);
}

// Now durable.
void LaneTable::Impl::adopt(Lane& lane, const Resource& resource, const FenceView& found, Turn turn) {
  const bool changed = lane.adopt(found);
  lane.is_known = lane.generation == generation_;
  remember(lane, resource);
  if (changed) sweep(lane, turn);
}

// What is remembered is taken for the whole: a record below the floor is not.
void LaneTable::Impl::remember(const Lane& lane, const Resource& resource) {
  const auto& record = lane.view.record;
  if (lane.is_known && record && record->token.value() >= lane.view.floor) {
    remembered_.put(resource, *record);
  } else {
    remembered_.erase(resource);
  }
}

// The store may hold more than what is known here.
void LaneTable::Impl::lose(Lane& lane, Passage& passage, const Resource& resource, const Fault& fault) {
  lane.is_known = false;
  remembered_.erase(resource);
  passage.fault = of_fence(passage.kind, fault);
}

// A revoke waits for writes alone, whatever the fence is.
std::vector<Passage*> LaneTable::Impl::take_waiting() {
  std::vector<Passage*> waiting;
  book_.for_each_lane([&](Lane& lane) {
    for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced}) {
      while (!queue->empty()) {
        Place& place = queue->front();
        place.unlink();
        place.is_ready = false;
        Passage& passage = *place.passage;
        if (passage.stage == Passage::Stage::deciding) continue;  // a pair's other place
        passage.stage = Passage::Stage::deciding;
        passage.ready_count = 0;
        waiting.push_back(&passage);
      }
    }
  });
  std::sort(waiting.begin(), waiting.end(), [](auto* a, auto* b) { return a->ticket < b->ticket; });
  return waiting;
}

void LaneTable::Impl::forget_fences(Turn turn) {
  ++generation_;
  remembered_.clear();
  // Who had waited longer is decided on first: the others' numbers may be higher.
  std::vector<std::pair<Lane*, Queue>> behind;
  book_.for_each_lane([&](Lane& lane) {
    lane.is_known = false;
    if (!lane.undecided.empty()) behind.emplace_back(&lane, std::move(lane.undecided));
  });
  for (Passage* passage : take_waiting()) take_up(*passage, turn);
  for (auto& [lane, queue] : behind) lane->undecided.splice(lane->undecided.end(), queue);
  look_at_touched(turn);
}

}  // namespace fenceguard::proxy
