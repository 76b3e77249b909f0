#include "tests/lane/lane_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fenceguard::test {

using namespace proxy;

namespace {

constexpr Time cut_off_pause{1'000};  // of the LaneTable, after a cut that failed

}  // namespace

LaneSimulation::LaneSimulation(const Settings& settings) : settings_{settings}, random_{settings.seed} {
  start_guard();
}

std::string LaneSimulation::run() {
  for (int i = 0; i < settings_.actions && violation_.empty(); ++i) {
    schedule(Time{random(6)}, [this] { act(); });
    while (!events_.empty() && events_.top().at <= now_ + Time{5} && violation_.empty()) run_events();
  }
  is_ending_ = true;
  if (!table_) start_guard();
  while (!events_.empty() && violation_.empty()) run_events();
  if (violation_.empty()) check_end();
  return violation_;
}

void LaneSimulation::schedule(Time delay, std::function<void()> run) {
  events_.push({now_ + delay, next_order_++, std::move(run)});
}

void LaneSimulation::run_events() {
  const Event event = events_.top();
  events_.pop();
  now_ = event.at;
  event.run();
}

void LaneSimulation::violate(const std::string& what) {
  if (violation_.empty())
    violation_ = fmt::format("seed {}, at {} ms: {}", settings_.seed, now_.count(), what);
}

// One thing that a client, or fate, does.
void LaneSimulation::act() {
  if (chance(2)) stop_guard();
  if (!table_) return;
  if (!settings_.cuts_off && chance(1)) compact();  // as the LaneScheduler does
  if (chance(1)) raise_floor();
  const std::string resource = fmt::format("r{}", random(3));
  const Claim claim = choose_claim(resource);
  const int what = random(100);
  if (what < 45) {
    ask(Kind::write, {claim});
  } else if (what < 60) {
    const bool again = chance(30) && sequences_[claim.token.value()] > 0;
    const int number = again ? sequences_[claim.token.value()] : ++sequences_[claim.token.value()];
    ask(Kind::write, {claim.with(Sequence{number})});
  } else if (what < 75) {
    ask(Kind::write, {claim, choose_claim(fmt::format("r{}", random(3)))});
  } else if (what < 85) {
    ask(Kind::read, {claim});
  } else if (what < 95) {
    ask(Kind::advance, {claim});
  } else if (what < 97) {
    ask(Kind::revoke, {claim});
  } else if (!operations_.empty()) {
    const Ticket ticket = next_ticket_ - 1 - static_cast<Ticket>(random(3));
    const auto found = operations_.find(ticket);
    if (found == operations_.end() || found->second.life != life_) return;
    feed([&](Actions& actions) {
      if (table_->withdraw(ticket, {now_, actions}))
        found->second.is_answered = found->second.is_refused = true;
    });
  }
}

// Of a new grant, or of one of the last: its holder does not know that it was overtaken.
Claim LaneSimulation::choose_claim(const std::string& resource) {
  auto& grants = grants_[resource];
  if (grants.empty() || chance(25)) grants.push_back(++issued_);
  const std::size_t back = std::min(grants.size() - 1, static_cast<std::size_t>(random(3)));
  const std::int64_t token = grants[grants.size() - 1 - back];
  return {Resource{resource}, Token{token}, Holder{fmt::format("h{}", token)}, std::nullopt};
}

void LaneSimulation::ask(Kind kind, std::vector<Claim> claims) {
  const Ticket ticket = next_ticket_++;
  Operation operation;
  operation.kind = kind;
  operation.claims = claims;
  operation.life = life_;
  operation.asked_at = now_;
  operations_.emplace(ticket, std::move(operation));
  // As Lanes does: durably, before the first write is let in.
  if (kind == Kind::write) is_marked_ = true;
  feed([&](Actions& actions) {
    if (!enter_at_once(ticket, actions)) table_->ask({ticket, kind, std::move(claims)}, {now_, actions});
  });
}

// As the fast path does, for half of those that it takes.
bool LaneSimulation::enter_at_once(Ticket ticket, Actions& actions) {
  const Operation& operation = operations_.at(ticket);
  const bool is_taken = (operation.kind == Kind::write || operation.kind == Kind::read) &&
                        operation.claims.size() == 1 && !operation.claims[0].sequence;
  if (!is_taken || chance(50)) return false;
  const auto highest = table_->enter_at_once(ticket, operation.kind, operation.claims[0], now_);
  if (!highest) return false;
  ++counts_.entered_at_once;
  actions.emplace_back(EnteredEvent{ticket, {Ruling{Verdict::admitted, *highest, std::nullopt}}});
  return true;
}

// Whoever was let in before is cut off.
void LaneSimulation::require_cut_off(Kind kind, const Claim& claim) {
  const auto& name = claim.resource.name();
  const std::int64_t last = highest_entered_[name];
  const bool is_over = kind == Kind::revoke || last < claim.token.value();
  if (settings_.cuts_off && is_over && cut_off_to_[name] < last)
    violate(fmt::format("{}: {} went on before {} was cut off", name, claim.token.value(), last));
}

void LaneSimulation::let_in(const EnteredEvent& entered) {
  Operation& operation = operations_.at(entered.ticket);
  if (operation.is_answered) violate("an operation was answered twice");
  operation.is_answered = operation.is_entered = true;
  ++counts_.entered;
  if (operation.asked_at < now_) ++counts_.waited;
  for (const Claim& claim : operation.claims) require_cut_off(operation.kind, claim);
  if (operation.kind == Kind::revoke) return;
  for (const Claim& claim : operation.claims) {
    auto& highest = highest_entered_[claim.resource.name()];
    if (claim.token.value() < highest) {
      violate(fmt::format("{}: {} was let in after {}", claim.resource.name(), claim.token.value(), highest));
    }
    highest = std::max(highest, claim.token.value());
    if (claim.token.value() <= floor_told_) violate(claim.resource.name() + ": the floor was passed below");
    if (claim.sequence &&
        acknowledged_.contains({claim.resource.name(), claim.token.value(), claim.sequence->value()}))
      violate("a write that was acknowledged was let in again");
  }
  if (operation.kind == Kind::write) forward(entered.ticket);
  if (operation.kind == Kind::read) read(entered.ticket, 1 + random(3));
}

// The upstream looks at the object for a part of its answer, and the guard has it some time later.
void LaneSimulation::read(Ticket ticket, int parts) {
  schedule(Time{random(20)}, [this, ticket, parts] {
    const std::int64_t seen = newest_applied_[operations_.at(ticket).claims[0].resource.name()];
    schedule(Time{random(20)}, [this, ticket, parts, seen] { pass_on_read(ticket, parts, seen); });
  });
}

void LaneSimulation::pass_on_read(Ticket ticket, int parts, std::int64_t seen) {
  const Operation& operation = operations_.at(ticket);
  if (operation.life != life_ || !table_) return;
  const Claim& claim = operation.claims[0];
  const bool stands =
      !settings_.judges_reads_again || table_->judge_read(ticket).verdict == Verdict::admitted;
  if (stands && seen > claim.token.value()) {
    violate(fmt::format("{}: a read of {} holds what {} wrote", claim.resource.name(), claim.token.value(),
                        seen));
  }
  if (stands && parts > 1) return read(ticket, parts - 1);
  ++(stands ? counts_.reads : counts_.overtaken_reads);
  feed([&](Actions& actions) { table_->end_read(ticket, {now_, actions}); });
}

// What becomes of a write: answered, refused, never sent, or its end is not seen.
void LaneSimulation::forward(Ticket ticket) {
  Operation& operation = operations_.at(ticket);
  const int fate = random(100);
  const auto end_after = [&](Time delay, Ending ending) {
    schedule(delay, [this, ticket, ending] { end(ticket, ending); });
  };
  const auto apply_after = [&](Time delay) {
    operation.apply_at = now_ + delay;
    schedule(delay, [this, ticket] { apply(ticket); });
  };
  if (fate < 70 || is_ending_) {
    const Time applied{random(20)};
    apply_after(applied);
    end_after(applied + Time{random(20)}, Ending::took_effect);
  } else if (fate < 78) {
    end_after(Time{random(20)}, Ending::refused);
  } else if (fate < 82) {
    end_after(Time{0}, Ending::unsent);
  } else {
    const Time given_up{10 + random(50)};
    end_after(given_up, Ending::unknown);
    const Time last = given_up + settings_.upstream_settle - Time{1};
    if (chance(80)) apply_after(Time{random(static_cast<int>(last.count()) + 1)});
  }
}

void LaneSimulation::apply(Ticket ticket) {
  Operation& operation = operations_.at(ticket);
  if (operation.is_applied || operation.apply_at != now_) return;
  operation.is_applied = true;
  ++counts_.applied;
  if (operation.is_over || operation.life != life_) ++counts_.applied_late;
  if (operation.is_refused) violate("a write that was reported as refused took effect");
  for (const Claim& claim : operation.claims) {
    auto& newest = newest_applied_[claim.resource.name()];
    newest = std::max(newest, claim.token.value());
    const std::int64_t highest = highest_entered_[claim.resource.name()];
    if (claim.token.value() < highest) {
      violate(fmt::format("{}: a write of {} took effect after {} was let in", claim.resource.name(),
                          claim.token.value(), highest));
    }
    if (claim.sequence) applied_.emplace(claim.resource.name(), claim.token.value(), claim.sequence->value());
  }
}

void LaneSimulation::end(Ticket ticket, Ending ending) {
  Operation& operation = operations_.at(ticket);
  if (operation.life != life_ || !table_) return;
  operation.is_over = true;
  if (ending == Ending::unknown) {
    ++counts_.unknown;
    if (!settings_.tells_unknown) ending = Ending::refused;
  } else if (ending == Ending::took_effect) {
    operation.took_effect = true;
  } else {
    operation.is_refused = true;
  }
  feed([&](Actions& actions) {
    if (ending != Ending::unknown && chance(50) && table_->end_at_once(ticket)) {
      ++counts_.ended_at_once;
      actions.emplace_back(LeftEvent{ticket, std::nullopt});
    } else {
      table_->ended(ticket, ending, {now_, actions});
    }
  });
}

void LaneSimulation::note_refusal(const RefusedEvent& refused) {
  Operation& operation = operations_.at(refused.ticket);
  if (operation.is_answered) violate("an operation was answered twice");
  operation.is_answered = true;
  if (refused.ruling.verdict != Verdict::duplicate) {
    operation.is_refused = true;
    return;
  }
  ++counts_.duplicates;
  const Claim& claim = operation.claims.at(refused.claim);
  if (!applied_.contains({claim.resource.name(), claim.token.value(), claim.sequence->value()}))
    violate("a duplicate of a write that did not take effect");
}

void LaneSimulation::note_left(const LeftEvent& left) {
  const Operation& operation = operations_.at(left.ticket);
  if (left.fault || !operation.took_effect) return;
  if (!operation.is_applied) violate("a write was acknowledged that did not take effect");
  for (const Claim& claim : operation.claims) {
    if (!claim.sequence || highest_entered_[claim.resource.name()] > claim.token.value()) continue;
    acknowledged_.emplace(claim.resource.name(), claim.token.value(), claim.sequence->value());
  }
}

// Killed, or stopped in order: what was sent is on its way, what the store was asked may or may not be done.
void LaneSimulation::stop_guard() {
  if (!table_) return;
  if (chance(30) && table_->is_settled(now_)) is_marked_ = false;
  table_.reset();
  if (!settings_.keeps_pending) pending_.clear();
  ++life_;
  ++counts_.crashes;
  for (auto& [ticket, operation] : operations_) {
    const Time last = now_ + settings_.upstream_settle - Time{1};
    if (operation.is_applied || !operation.apply_at || *operation.apply_at <= last) continue;
    operation.apply_at = last;
    schedule(last - now_, [this, id = ticket] { apply(id); });
  }
  schedule(Time{random(40)}, [this] {
    if (!table_) start_guard();
  });
}

void LaneSimulation::start_guard() {
  table_.emplace(LaneLimits{settings_.settle, 20, 40, 2});
  if (is_marked_ && settings_.closes_at_restart) table_->close_all(now_ + settings_.settle);
}

// Every operation was answered, and every resource is open again.
void LaneSimulation::check_end() {
  for (const auto& [ticket, operation] : operations_) {
    if (operation.life == life_ && !operation.is_answered) violate("an operation was never answered");
  }
  now_ += settings_.settle + (settings_.cuts_off ? cut_off_pause : Time{0}) + Time{1};
  feed([&](Actions& actions) { table_->tick({now_, actions}); });
  while (!events_.empty() && violation_.empty()) run_events();
  for (const auto& [resource, grants] : grants_) {
    const Ticket ticket = next_ticket_;
    const std::int64_t token = ++issued_;
    ask(Kind::write, {{Resource{resource}, Token{token}, Holder{fmt::format("h{}", token)}, std::nullopt}});
    while (!events_.empty() && violation_.empty()) run_events();
    if (!operations_.at(ticket).is_entered) violate(resource + " did not open again");
  }
  if (table_->figures().lanes != 0) violate("an idle lane was kept");
  if (!table_->is_settled(now_)) violate("the lanes did not settle");
}

}  // namespace fenceguard::test
