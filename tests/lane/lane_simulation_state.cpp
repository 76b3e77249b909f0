// The simulated guard's state: what the LaneTable asks it for, and what it keeps over a restart.

#include <algorithm>

#include "tests/lane/lane_simulation.hpp"

namespace fenceguard::test {

using namespace proxy;

// Answered in order, late, and sometimes with a fault: nothing done, or nobody knows. A guard that has died
// meanwhile hears nothing, and what it asked for is done or not.
template <class T, class Apply, class Answer>
void LaneSimulation::call_store(Apply apply, Answer answer) {
  store_at_ = std::max(store_at_, now_ + Time{random(4)});
  schedule(store_at_ - now_, [this, life = life_, apply, answer] {
    const int fate = is_ending_ ? 99 : random(100);
    if (life != life_ || !table_) {
      if (fate < 50) (void)apply();
      return;
    }
    Outcome<T> outcome{Fault{fate < 3 ? FaultKind::unavailable : FaultKind::unknown, "the store's fault"}};
    if (fate >= 6 || (fate >= 3 && chance(50))) {
      T value = apply();
      if (fate >= 6) outcome = std::move(value);
    }
    feed([&](Actions& actions) { answer(outcome, actions); });
  });
}

// Below every grant that is the latest of its resource.
void LaneSimulation::compact() {
  std::int64_t lowest_live = issued_ + 1;
  for (const auto& [resource, grants] : grants_) lowest_live = std::min(lowest_live, grants.back());
  call_store<bool>(
      [this, lowest_live] {
        std::erase_if(records_, [&](const auto& entry) {
          const std::int64_t token = entry.second.token.value();
          if (token >= lowest_live) return false;
          floor_ = std::max(floor_, token);
          return true;
        });
        return true;
      },
      [this](const Outcome<bool>&, Actions& late) {
        table_->forget_fences({now_, late});
      });
}

// Above every grant, by hand. Once that was told, only what was granted later is let in.
void LaneSimulation::raise_floor() {
  const std::int64_t floor = ++issued_;
  call_store<bool>(
      [this, floor] {
        floor_ = std::max(floor_, floor);
        return true;
      },
      [this, floor](const Outcome<bool>& outcome, Actions& late) {
        table_->forget_fences({now_, late});
        if (outcome.ok()) floor_told_ = std::max(floor_told_, floor);
      });
}

void LaneSimulation::feed(const std::function<void(Actions&)>& event) {
  Actions actions;
  event(actions);
  const auto due = table_->due();
  if (due) {
    schedule(std::max(*due - now_, Time{0}), [this, life = life_] {
      if (life != life_ || !table_->due() || *table_->due() > now_) return;
      feed([&](Actions& late) { table_->tick({now_, late}); });
    });
  }
  take(actions);
}

void LaneSimulation::take(const Actions& actions) {
  for (const Action& action : actions) {
    if (const auto* entered = std::get_if<EnteredEvent>(&action)) {
      let_in(*entered);
    } else if (const auto* refused = std::get_if<RefusedEvent>(&action)) {
      note_refusal(*refused);
    } else if (const auto* failed = std::get_if<FailedEvent>(&action)) {
      operations_.at(failed->ticket).is_answered = operations_.at(failed->ticket).is_refused = true;
    } else if (const auto* left = std::get_if<LeftEvent>(&action)) {
      note_left(*left);
    } else if (const auto* load = std::get_if<Load>(&action)) {
      const auto look = [this, name = load->resource.name()] {
        const auto found = records_.find(name);
        return FenceView{found == records_.end() ? std::nullopt : std::optional{found->second}, floor_};
      };
      call_store<FenceView>(look, [this, resource = load->resource](const auto& outcome, Actions& late) {
        table_->loaded(resource, outcome, {now_, late}, pending_[resource.name()]);
      });
    } else if (const auto* raise = std::get_if<Raise>(&action)) {
      call_store<Ruling>([this, claim = raise->claim] { return rule(claim); },
                         [this, claim = raise->claim](const auto& outcome, Actions& late) {
                           table_->raised(claim, outcome, {now_, late}, pending_[claim.resource.name()]);
                         });
    } else if (const auto* close = std::get_if<Close>(&action)) {
      const auto apply = [this, name = close->resource.name()] {
        const auto found = records_.find(name);
        if (found == records_.end()) return FenceView{std::nullopt, floor_};
        mark_pending(name, found->second);
        found->second.closed = true;
        return FenceView{found->second, floor_};
      };
      call_store<FenceView>(apply, [this, call = *close](const auto& outcome, Actions& late) {
        table_->closed(call.resource, call.ticket, outcome, {now_, late}, pending_[call.resource.name()]);
      });
    } else if (const auto* record = std::get_if<Record>(&action)) {
      call_store<Ruling>([this, claim = record->claim] { return rule(claim); },
                         [this, call = *record](const auto& outcome, Actions& late) {
                           table_->recorded(call.claim, call.ticket, outcome, {now_, late});
                         });
    } else if (const auto* call = std::get_if<CutOff>(&action)) {
      schedule(Time{random(20)}, [this, call = *call, life = life_] { cut_off(call, life); });
    }
  }
}

Ruling LaneSimulation::rule(const Claim& claim) {
  const auto found = records_.find(claim.resource.name());
  const Ruling ruling =
      judge({found == records_.end() ? std::nullopt : std::optional{found->second}, floor_}, claim);
  if (ruling.raised && found != records_.end()) mark_pending(found->first, found->second);
  if (ruling.changed) records_.insert_or_assign(claim.resource.name(), *ruling.fence);
  return ruling;
}

// In the step that overtakes or closes this fence.
void LaneSimulation::mark_pending(const std::string& resource, const Fence& fence) {
  auto& pending = pending_[resource];
  if (settings_.cuts_off && pending == 0 && !fence.finished) pending = fence.token.value();
}

// The end of a fence method: of a guard that has died meanwhile it may have had its effect.
void LaneSimulation::cut_off(const CutOff& call, int life) {
  const bool is_living = life == life_ && table_;
  const bool is_done = is_living ? is_ending_ || chance(90) : chance(50);
  auto& cut_off_to = cut_off_to_[call.resource.name()];
  if (is_done) cut_off_to = std::max(cut_off_to, call.old_token.value());
  if (!is_living) return;
  if (!is_done) {
    const Fault fault{FaultKind::unavailable, "no fence method has succeeded"};
    return feed([&](Actions& late) { table_->cut_off(call.resource, call.old_token, fault, {now_, late}); });
  }
  ++counts_.cut_off;
  const auto settle = [this, call] {
    auto& pending = pending_[call.resource.name()];
    if (pending > call.old_token.value()) return false;
    pending = 0;
    const auto found = records_.find(call.resource.name());
    if (found != records_.end()) found->second.finished = found->second.closed;
    return true;
  };
  call_store<bool>(settle, [this, call](const auto& outcome, Actions& late) {
    table_->cut_off(call.resource, call.old_token, outcome, {now_, late});
  });
}

}  // namespace fenceguard::test
