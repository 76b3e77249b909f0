#include "tests/proof/simulation/lane_guard.hpp"

#include <algorithm>
#include <new>

#include "tests/proof/memory/memory.hpp"

namespace fenceguard::proof {

using namespace proxy;
using Admitted = fenceguard::Verdict;

LaneGuard::LaneGuard(World& world, std::function<std::int64_t()> drawn,
                     std::function<void(std::int64_t)> record_floor)
    : world_{world}, drawn_{std::move(drawn)}, record_floor_{std::move(record_floor)} {
  start();
}

void LaneGuard::ask(Question question, std::function<void(Reply)> done) {
  world_.send(false, [this, question = std::move(question), done = std::move(done)] {
    if (!world_.is_calm && world_.random.percent(world_.weather.guard_crash)) crash();
    arrive(question, done);
  });
}

void LaneGuard::arrive(Question question, std::function<void(Reply)> done) {
  if (!table_) return;  // the connection is refused, and the client does not know it from a lost answer
  const Ticket ticket = next_++;
  auto claims = question.claims;
  proxy::Kind kind = proxy::Kind::write;
  if (question.kind == Kind::read) kind = proxy::Kind::read;
  if (question.kind == Kind::advance) kind = proxy::Kind::advance;
  if (question.kind == Kind::revoke) kind = proxy::Kind::revoke;
  const Resource resource{world_.history.resources[question.resource].name};
  if (kind == proxy::Kind::revoke) claims = {{resource, Token{1}, Holder{""}, std::nullopt}};
  const bool is_plain = kind == proxy::Kind::read && claims.empty();
  asked_.emplace(ticket, Asked{std::move(question), std::move(done), life_, {}, {}, false, false, {}});
  if (is_plain) return look(ticket);
  if (kind == proxy::Kind::write) is_marked_ = true;  // durably, before the first write is let in
  feed([&](Actions& actions) {
    const bool may_enter = (kind == proxy::Kind::write || kind == proxy::Kind::read) && claims.size() == 1 &&
                           !claims[0].sequence && world_.random.percent(50);
    const auto highest = may_enter ? table_->enter_at_once(ticket, kind, claims[0], now()) : std::nullopt;
    if (highest) {
      actions.emplace_back(EnteredEvent{ticket, {Ruling{Admitted::admitted, *highest, std::nullopt}}});
    } else {
      table_->ask({ticket, kind, std::move(claims)}, {now(), actions});
    }
  });
}

void LaneGuard::let_in(const EnteredEvent& entered) {
  Asked& asked = asked_.at(entered.ticket);
  asked.rulings = entered.rulings;
  if (asked.question.kind == Kind::revoke) return answer(entered.ticket, {{Answer::admitted}});
  if (asked.question.kind == Kind::advance)
    return answer(entered.ticket, {{Answer::admitted, entered.rulings[0].highest}});
  asked.question.kind == Kind::write ? forward(entered.ticket) : look(entered.ticket);
}

// What becomes of a write at the upstream: applied, refused, never sent, or its end is not seen.
void LaneGuard::forward(Ticket ticket) {
  Asked& asked = asked_.at(ticket);
  auto& random = world_.random;
  const auto end_after = [&](std::int64_t delay_ms, Ending ending) {
    world_.after(delay_ms, [this, ticket, ending] { end(ticket, ending); });
  };
  const auto apply_after = [&](std::int64_t delay_ms) {
    asked.apply_at = world_.now_ms() + delay_ms;
    world_.after(delay_ms, [this, ticket] { apply(ticket); });
  };
  const int fate = world_.is_calm ? 99 : random(100);
  if (fate < world_.weather.unknown) {
    const int given_up_ms = 10 + random(50);
    end_after(given_up_ms, Ending::unknown);
    if (random.percent(80)) apply_after(random(given_up_ms + static_cast<int>(settle_ms)));
  } else if (fate < world_.weather.unknown + 2) {
    end_after(0, Ending::unsent);
  } else if (fate < world_.weather.unknown + 2 + world_.weather.refusal) {
    end_after(random(20), Ending::refused);
  } else {
    const int applied_ms = random(20);
    apply_after(applied_ms);
    end_after(applied_ms + 1 + random(20), Ending::took_effect);
  }
}

void LaneGuard::apply(Ticket ticket) {
  Asked& asked = asked_.at(ticket);
  if (asked.is_applied || asked.apply_at != world_.now_ms()) return;
  asked.is_applied = true;
  if (asked.is_over || asked.life != life_) ++world_.counts.late_writes;
  for (std::size_t i = 0; i < asked.question.claims.size(); ++i) {
    const Claim& claim = asked.question.claims[i];
    values_[claim.resource.name()] = asked.question.values[i];
    for (auto& resource : world_.history.resources) {
      if (resource.name == claim.resource.name())
        resource.log.push_back({claim.token.value(), asked.question.values[i]});
    }
  }
}

void LaneGuard::end(Ticket ticket, Ending ending) {
  Asked& asked = asked_.at(ticket);
  if (asked.life != life_ || !table_) return;
  asked.is_over = true;
  asked.ending = ending;
  feed([&](Actions& actions) {
    if (ending != Ending::unknown && world_.random.percent(50) && table_->end_at_once(ticket)) {
      actions.emplace_back(LeftEvent{ticket, std::nullopt});
    } else {
      table_->ended(ticket, ending, {now(), actions});
    }
  });
}

void LaneGuard::left(const LeftEvent& left) {
  const Asked& asked = asked_.at(left.ticket);
  Answer told = Answer::unknown;
  if (!left.fault && asked.ending == Ending::took_effect) told = Answer::admitted;
  if (!left.fault && asked.ending == Ending::refused) told = Answer::refused;
  if (!left.fault && asked.ending == Ending::unsent) told = Answer::unavailable;
  Reply reply;
  for (std::size_t i = 0; i < asked.question.claims.size(); ++i) {
    const bool shows = told == Answer::admitted || told == Answer::refused;
    reply.push_back({told, shows ? asked.rulings.at(i).highest : -1});
  }
  answer(left.ticket, std::move(reply));
}

// The upstream looks, and the guard has what it saw some time later.
void LaneGuard::look(Ticket ticket) {
  world_.after(world_.random(20), [this, ticket] {
    const auto& question = asked_.at(ticket).question;
    const TextId value = values_[world_.history.resources[question.resource].name];
    world_.after(world_.random(20), [this, ticket, value] { judge_again(ticket, value); });
  });
}

void LaneGuard::judge_again(Ticket ticket, TextId value) {
  const Asked& asked = asked_.at(ticket);
  if (asked.life != life_ || !table_) return;
  if (asked.question.claims.empty()) return answer(ticket, {{Answer::admitted, -1, value}});
  const Ruling ruling = table_->judge_read(ticket);
  const bool is_in = ruling.verdict == Admitted::admitted;
  const Reply reply{{answer_of(ruling.verdict), ruling.highest, is_in ? value : 0}};
  feed([&](Actions& actions) { table_->end_read(ticket, {now(), actions}); });
  answer(ticket, reply);
}

void LaneGuard::answer(Ticket ticket, Reply reply) {
  const Asked& asked = asked_.at(ticket);
  if (asked.life != life_) return;
  world_.send(false, [done = asked.done, reply = std::move(reply)] { done(reply); });
}

void LaneGuard::answer_fault(Ticket ticket, const Fault& fault) {
  Answer told = Answer::unavailable;
  if (fault.kind == FaultKind::implausible) told = Answer::implausible;
  if (fault.kind == FaultKind::unknown) told = Answer::unknown;
  const auto count = std::max<std::size_t>(1, asked_.at(ticket).question.claims.size());
  answer(ticket, Reply(count, Told{told}));
}

// Killed: what was sent is on its way, what the state was asked may or may not be done. Its state may be gone
// afterwards, or an old one; then an operator waits until nothing is under way, and makes it anew.
void LaneGuard::crash() {
  if (!table_) return;
  ++world_.counts.guard_crashes;
  table_.reset();
  ++life_;
  for (auto& [ticket, asked] : asked_) {
    const std::int64_t last = world_.now_ms() + settle_ms - 1;
    if (asked.is_applied || !asked.apply_at || *asked.apply_at <= last) continue;
    asked.apply_at = last;
    world_.after(last - world_.now_ms(), [this, id = ticket] { apply(id); });
  }
  // At the end of all numbers there is none above what was lost.
  if (!world_.random.percent(world_.weather.state_loss) || drawn_() == never) {
    if (!backup_) backup_ = fences_;
    return world_.after(world_.random(40), [this] { start(); });
  }
  ++world_.counts.states_lost;
  world_.after(settle_ms + world_.random(40), [this] {
    if (drawn_() == never) return start();
    if (backup_ && world_.random.percent(50)) {
      fences_ = *backup_;
    } else {
      fences_ = {};
    }
    const std::int64_t floor = drawn_() + 1;
    raise_floor(floor);
    record_floor_(floor);
    is_marked_ = false;
    start();
  });
}

void LaneGuard::start() {
  if (table_) return;
  table_.emplace(LaneLimits{Time{settle_ms}, 20, 40, 2});
  if (is_marked_) table_->close_all(now() + Time{settle_ms});
}

void LaneGuard::raise_floor(std::int64_t floor) {
  fences_.raise_floor(floor);
  if (table_) feed([&](Actions& actions) { table_->forget_fences({now(), actions}); });
}

void LaneGuard::feed(const std::function<void(Actions&)>& event) {
  Actions actions;
  try {
    const Memory::Watch watch;
    event(actions);
  } catch (const std::bad_alloc&) {
    return crash();  // as what is noexcept ends the product
  }
  if (const auto due = table_->due()) {
    world_.after(std::max<std::int64_t>(0, (*due - now()).count()), [this, life = life_] {
      if (life != life_ || !table_->due() || *table_->due() > now()) return;
      feed([&](Actions& late) { table_->tick({now(), late}); });
    });
  }
  take(actions);
}

void LaneGuard::take(const Actions& actions) {
  for (const Action& action : actions) {
    if (const auto* entered = std::get_if<EnteredEvent>(&action)) {
      let_in(*entered);
    } else if (const auto* refused = std::get_if<RefusedEvent>(&action)) {
      const auto count = asked_.at(refused->ticket).question.claims.size();
      Reply reply(count, Told{Answer::unavailable});
      reply.at(refused->claim) = {answer_of(refused->ruling.verdict), refused->ruling.highest};
      answer(refused->ticket, std::move(reply));
    } else if (const auto* failed = std::get_if<FailedEvent>(&action)) {
      answer_fault(failed->ticket, failed->fault);
    } else if (const auto* over = std::get_if<LeftEvent>(&action)) {
      left(*over);
    } else {
      ask_state(action);
    }
  }
}

Outcome<Ruling> LaneGuard::raise(const Raise& raise) {
  const bool is_beyond = fences_.is_beyond_bound(raise.claim, jump_max) ||
                         (raise.other && fences_.is_beyond_bound(*raise.other, jump_max));
  if (is_beyond) return Fault{FaultKind::implausible, "beyond the bound"};
  return fences_.rule(raise.claim);
}

void LaneGuard::ask_state(const Action& action) {
  if (const auto* load = std::get_if<Load>(&action)) {
    call_state<FenceView>([this, resource = load->resource] { return Outcome{fences_.view(resource)}; },
                          [this, resource = load->resource](const auto& outcome, Actions& late) {
                            table_->loaded(resource, outcome, {now(), late});
                          });
  } else if (const auto* higher = std::get_if<Raise>(&action)) {
    call_state<Ruling>([this, call = *higher] { return raise(call); },
                       [this, claim = higher->claim](const auto& outcome, Actions& late) {
                         table_->raised(claim, outcome, {now(), late});
                       });
  } else if (const auto* close = std::get_if<Close>(&action)) {
    call_state<FenceView>([this, resource = close->resource] { return Outcome{fences_.close(resource)}; },
                          [this, call = *close](const auto& outcome, Actions& late) {
                            table_->closed(call.resource, call.ticket, outcome, {now(), late});
                          });
  } else if (const auto* record = std::get_if<Record>(&action)) {
    call_state<Ruling>([this, claim = record->claim] { return Outcome{fences_.rule(claim)}; },
                       [this, call = *record](const auto& outcome, Actions& late) {
                         table_->recorded(call.claim, call.ticket, outcome, {now(), late});
                       });
  }
}

// Answered in order, late, and sometimes with a fault: nothing done, or nobody knows. A guard that has died
// meanwhile hears nothing, and what it asked for is done or not.
template <class T, class Apply, class Answer>
void LaneGuard::call_state(Apply apply, Answer answer) {
  state_at_ms_ = std::max(state_at_ms_, world_.now_ms() + world_.random(4));
  world_.after(state_at_ms_ - world_.now_ms(), [this, life = life_, apply, answer] {
    const int fate = world_.is_calm ? 99 : world_.random(100);
    if (life != life_ || !table_) {
      // Not any more once another guard is at it: the state's file is locked by one process.
      if (fate < 50 && life + 1 == life_ && !table_) (void)apply();
      return;
    }
    Outcome<T> outcome{Fault{fate < 3 ? FaultKind::unavailable : FaultKind::unknown, "the state's fault"}};
    if (fate >= 6 || (fate >= 3 && world_.random.percent(50))) {
      Outcome<T> value = apply();
      if (fate >= 6) outcome = std::move(value);
    }
    feed([&](Actions& actions) { answer(outcome, actions); });
  });
}

}  // namespace fenceguard::proof
