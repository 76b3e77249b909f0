#include <fmt/format.h>

#include <algorithm>

#include "adapters/http/lane_rule.hpp"

namespace fenceguard::proxy {
namespace {

constexpr Time retry_min{1'000};

void move_all(Queue& from, Queue& to) {
  to.splice(to.end(), from);
}

}  // namespace

bool LaneTable::Impl::may_enter(const Lane& lane, const Claim& claim) const {
  if (!lane.is_drained(claim)) return false;
  return !claim.sequence || (!lane.has_sequence_in_flight && lane.sequenced.empty());
}

// All claims equal their fences.
void LaneTable::Impl::line_up(Passage& passage, Turn turn) {
  bool is_crowded = false;
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    const Place& place = passage.asked(i);
    if (is_closed(*place.lane, turn.now)) return fail_closed(passage, *place.lane, turn);
    if (may_enter(*place.lane, *place.claim)) ++passage.ready_count;
    is_crowded |= place.lane->waiting > limit(passage.kind, limits_.waiting_per_resource_max);
  }
  if (passage.ready_count == passage.place_count) return enter(passage, turn);
  if (is_crowded && !passage.has_waited) {
    return fail(passage, {FaultKind::unavailable, "too many operations wait for this resource", retry_min},
                turn);
  }
  passage.stage = Passage::Stage::waiting;
  passage.has_waited = true;
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    Place& place = passage.places[i];
    const bool is_ready = may_enter(*place.lane, *place.claim);
    Lane& lane = *place.lane;
    (place.claim->sequence ? lane.sequenced : is_ready ? lane.ready : lane.draining).push_back(place);
    place.is_ready = is_ready;
  }
  release(passage);
}

// The fence is closed; what it let in before must be over.
void LaneTable::Impl::line_up_revoke(Passage& passage, Turn turn) {
  Place& place = passage.places[0];
  Lane& lane = *place.lane;
  if (passage.withdrawn) return retire(passage);
  if (is_closed(lane, turn.now)) return fail_closed(passage, lane, turn);
  if (lane.in_flight == 0) return enter(passage, turn);
  passage.stage = Passage::Stage::waiting;
  lane.revokes.push_back(place);
  release(passage);
}

void LaneTable::Impl::let_in(Lane& lane, const Claim& claim) {
  ++lane.in_flight;
  ++in_flight_;
  lane.in_flight_token = claim.token.value();
  if (claim.sequence) lane.has_sequence_in_flight = true;
}

// All its places are ready, at this one instant.
void LaneTable::Impl::enter(Passage& passage, Turn turn) {
  // Its sequence may have taken effect, or been overtaken, while it waited.
  if (passage.kind != Kind::revoke && refuse_if_judged(passage, turn)) return;
  Entered entered{passage.ticket, {}};
  for (std::size_t i = 0; i < passage.place_count && passage.kind != Kind::revoke; ++i) {
    const Lane& lane = *passage.asked(i).lane;
    entered.rulings.push_back({Verdict::admitted, lane.view.highest(), std::nullopt});
    if (passage.kind == Kind::advance) entered.rulings.back().fence = lane.view.record;
  }
  if (passage.asked_twice) entered.rulings.push_back(entered.rulings.front());
  turn.actions.emplace_back(std::move(entered));
  if (passage.kind == Kind::advance || passage.kind == Kind::revoke) return retire(passage);
  end_waiting(passage);
  if (passage.kind == Kind::read) {
    ++passage.places[0].lane->reads;
    passage.stage = Passage::Stage::reading;
    return;
  }
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    let_in(*passage.places[i].lane, *passage.places[i].claim);
  }
  passage.stage = Passage::Stage::in_flight;
}

// The fence has changed: whoever waits is judged again.
void LaneTable::Impl::sweep(Lane& lane, Turn turn) {
  Queue all;
  for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced}) move_all(*queue, all);
  while (!all.empty()) {
    Place& place = all.front();
    place.unlink();
    if (lane.verdict(*place.claim) != Verdict::admitted) {
      refuse(*place.passage, place.asked_at, judge(lane.view, *place.claim), turn);
    } else {
      (place.claim->sequence ? lane.sequenced : place.is_ready ? lane.ready : lane.draining).push_back(place);
    }
  }
}

// A write's end was not seen.
void LaneTable::Impl::close(Lane& lane, Turn turn) {
  lane.closed_until = turn.now + limits_.settle;
  timers_.push_back({lane.closed_until, &lane});
  if (lane.timers++ == 0) ++closed_;
  ++settle_closures_;
  for (Queue* queue : {&lane.draining, &lane.ready, &lane.sequenced, &lane.revokes}) {
    while (!queue->empty()) fail_closed(*queue->front().passage, lane, turn);
  }
  touch(lane);
}

Fault LaneTable::Impl::closed_fault(const Lane* lane, Time now) const {
  Time left = std::max((lane != nullptr ? open_at(*lane) : all_closed_until_) - now, Time{0});
  if (lane != nullptr && lane->unrecorded) left = std::max(left, retry_min);
  const bool is_own = lane != nullptr && (lane->unrecorded || lane->closed_until > all_closed_until_);
  constexpr auto own =
      "the end of a write on this resource was not seen: it is quarantined until the settle "
      "time is over";
  constexpr auto all =
      "the guard before this one ended with a write unfinished or unknown: every resource is "
      "quarantined until the settle time is over";
  return {FaultKind::unavailable, is_own ? own : all, left};
}

std::optional<Fault> LaneTable::Impl::quarantine(std::string_view name, Time now) const {
  const Lane* lane = book_.find_lane(name);
  const bool is_open = lane != nullptr ? !is_closed(*lane, now) : all_closed_until_ <= now;
  if (is_open) return std::nullopt;
  return closed_fault(lane, now);
}

// What was made durable on the way here stands, and is told.
void LaneTable::Impl::fail_closed(Passage& passage, const Lane& lane, Turn turn) {
  Fault fault = closed_fault(&lane, turn.now);
  if (passage.kind == Kind::revoke || passage.has_raised) {
    fault.message += fmt::format("; the fence was {}, and older writes may still be under way until then",
                                 passage.kind == Kind::revoke ? "closed" : "raised to this token");
  }
  fail(passage, std::move(fault), turn);
}

// Lets go what may, in the order in which it came.
void LaneTable::Impl::let_go(Lane& lane, Turn turn) {
  while (lane.in_flight == 0 && !lane.revokes.empty()) enter(*lane.revokes.front().passage, turn);
  const auto become_ready = [&](Place& place) {
    place.is_ready = true;
    Passage& passage = *place.passage;
    if (++passage.ready_count == passage.place_count) enter(passage, turn);
  };
  while (!lane.draining.empty() && lane.is_drained(*lane.draining.front().claim)) {
    Place& place = lane.draining.front();
    place.unlink();
    lane.ready.push_back(place);
    become_ready(place);
  }
  while (!lane.sequenced.empty() && !lane.has_sequence_in_flight) {
    Place& place = lane.sequenced.front();
    if (place.is_ready || !lane.is_drained(*place.claim)) break;
    become_ready(place);
  }
}

void LaneTable::Impl::look_at(Lane& lane, Turn turn) {
  let_go(lane, turn);
  if (lane.decider == nullptr && !lane.undecided.empty()) {
    Place& place = lane.undecided.front();
    place.unlink();
    lane.decider = place.passage;
    ++place.passage->held;
    touch(lane);
    take_up(*place.passage, turn);
  }
}

void LaneTable::Impl::look_at_touched(Turn turn) {
  while (!touched_.empty()) {
    Lane& lane = *touched_.back();
    touched_.pop_back();
    lane.is_touched = false;
    look_at(lane, turn);
    if (lane.is_idle() && !lane.is_touched) book_.drop(lane);
  }
}

void LaneTable::Impl::touch(Lane& lane) {
  if (lane.is_touched) return;
  lane.is_touched = true;
  touched_.push_back(&lane);
}

void LaneTable::Impl::ended(Ticket ticket, Ending ending, Turn turn) {
  Passage* const found = book_.find_passage(ticket);
  if (found == nullptr || found->stage != Passage::Stage::in_flight) return;
  Passage& passage = *found;
  passage.stage = Passage::Stage::recording;
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    const Place& place = passage.places[i];
    if (ending == Ending::unknown) close(*place.lane, turn);
    // Past its token the sequence counts no more.
    const bool counts = place.claim->sequence && place.lane->verdict(*place.claim) == Verdict::admitted;
    if (ending != Ending::took_effect || !counts) continue;
    ++passage.store_calls;
    turn.actions.emplace_back(Record{*place.claim, ticket});
  }
  if (passage.store_calls == 0) leave(passage, turn);
  look_at_touched(turn);
}

void LaneTable::Impl::recorded(const Claim& claim, Ticket ticket, const Outcome<Ruling>& outcome, Turn turn) {
  Lane* const found = book_.find_lane(claim.resource.name());
  if (found == nullptr) return;
  Lane& lane = *found;
  const bool is_own = lane.unrecorded && lane.unrecorded->ticket == ticket;
  const bool is_asked_again = is_own && lane.unrecorded->is_asked;
  if (outcome.ok()) {
    if (is_own) lane.unrecorded.reset();
    if (lane.adopt(outcome.value())) sweep(lane, turn);
    remember(lane, claim.resource);
  } else {
    // A duplicate would be let in. Nothing is, until it is recorded.
    lane.unrecorded = Lane::Unrecorded{claim, ticket};
    close(lane, turn);
  }
  touch(lane);
  // A pair's passage waits for the first record of either lane, and for no repetition.
  if (Passage* passage = is_asked_again ? nullptr : book_.find_passage(ticket)) {
    if (!outcome.ok()) {
      passage->fault = Fault{FaultKind::unknown,
                             fmt::format("the write took effect, and its sequence may not be recorded: {}",
                                         outcome.fault().message),
                             outcome.fault().retry_after};
    }
    if (--passage->store_calls == 0) leave(*passage, turn);
  }
  look_at_touched(turn);
}

// The write is over, or its lanes are closed for it.
void LaneTable::Impl::leave(Passage& passage, Turn turn) {
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    Lane& lane = *passage.places[i].lane;
    --lane.in_flight;
    --in_flight_;
    if (passage.places[i].claim->sequence) lane.has_sequence_in_flight = false;
    touch(lane);
  }
  turn.actions.emplace_back(Left{passage.ticket, std::move(passage.fault)});
  book_.drop(passage);
}

void LaneTable::Impl::refuse(Passage& passage, std::size_t claim, Ruling ruling, Turn turn) {
  if (!passage.withdrawn) turn.actions.emplace_back(Refused{passage.ticket, claim, std::move(ruling)});
  retire(passage);
}

void LaneTable::Impl::fail(Passage& passage, Fault fault, Turn turn) {
  if (!passage.withdrawn) turn.actions.emplace_back(Failed{passage.ticket, std::move(fault)});
  retire(passage);
}

// Its lanes may decide on others.
void LaneTable::Impl::release(Passage& passage) {
  for (; passage.held > 0; --passage.held) {
    Lane& lane = *passage.places[passage.held - 1].lane;
    lane.decider = nullptr;
    touch(lane);
  }
}

void LaneTable::Impl::end_waiting(Passage& passage) {
  release(passage);
  --waiting_;
  for (std::size_t i = 0; i < passage.place_count; ++i) {
    Place& place = passage.places[i];
    if (place.is_linked()) place.unlink();
    --place.lane->waiting;
    touch(*place.lane);
  }
}

void LaneTable::Impl::retire(Passage& passage) {
  end_waiting(passage);
  book_.drop(passage);
}

Ruling LaneTable::Impl::judge_read(Ticket ticket) const {
  const Place& place = book_.find_passage(ticket)->places[0];
  return judge(place.lane->view, *place.claim);
}

void LaneTable::Impl::end_read(Ticket ticket, Turn turn) {
  Passage* passage = book_.find_passage(ticket);
  if (passage == nullptr || passage->stage != Passage::Stage::reading) return;
  Lane& lane = *passage->places[0].lane;
  --lane.reads;
  touch(lane);
  book_.drop(*passage);
  look_at_touched(turn);
}

bool LaneTable::Impl::withdraw(Ticket ticket, Turn turn) {
  Passage* passage = book_.find_passage(ticket);
  if (passage == nullptr || passage->withdrawn) return false;
  if (passage->stage != Passage::Stage::deciding && passage->stage != Passage::Stage::waiting) return false;
  if (passage->store_calls > 0) {
    passage->withdrawn = true;
  } else {
    retire(*passage);
    look_at_touched(turn);
  }
  return true;
}

void LaneTable::Impl::tick(Turn turn) {
  while (!timers_.empty() && timers_.front().until <= turn.now) {
    Lane& lane = *timers_.front().lane;
    timers_.pop_front();
    if (--lane.timers == 0) --closed_;
    if (lane.timers == 0 && lane.unrecorded && !lane.unrecorded->is_asked) {
      lane.unrecorded->is_asked = true;
      turn.actions.emplace_back(Record{lane.unrecorded->claim, lane.unrecorded->ticket});
    }
    touch(lane);
  }
  look_at_touched(turn);
}

bool LaneTable::Impl::is_overtaken(const Resource& resource, Token token) const {
  const Lane* lane = book_.find_lane(resource.name());
  if (lane == nullptr) return false;
  const auto& record = lane->view.record;
  return lane->view.highest() > token.value() || (record && record->closed && record->token == token);
}

std::optional<Time> LaneTable::Impl::due() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.front().until;
}

bool LaneTable::Impl::is_settled(Time now) const {
  if (in_flight_ > 0 || all_closed_until_ > now) return false;
  if (!timers_.empty() && timers_.back().until > now) return false;
  bool is_recorded = true;
  book_.for_each_lane([&](const Lane& lane) { is_recorded &= !lane.unrecorded; });
  return is_recorded;
}

LaneTable::Figures LaneTable::Impl::figures() const {
  return {book_.lane_count(), waiting_, in_flight_, closed_, settle_closures_};
}

}  // namespace fenceguard::proxy
