#include "adapters/http/lane_table.hpp"

#include "adapters/http/lane_rule.hpp"

namespace fenceguard::proxy {

LaneTable::LaneTable(LaneLimits limits) : impl_{std::make_unique<Impl>(limits)} {}
LaneTable::~LaneTable() = default;

void LaneTable::ask(Ask ask, Time now, Actions& actions) {
  impl_->ask(std::move(ask), {now, actions});
}

void LaneTable::ended(Ticket ticket, Ending ending, Time now, Actions& actions) {
  impl_->ended(ticket, ending, {now, actions});
}

Ruling LaneTable::judge_read(Ticket ticket) const {
  return impl_->judge_read(ticket);
}

void LaneTable::end_read(Ticket ticket, Time now, Actions& actions) {
  impl_->end_read(ticket, {now, actions});
}

bool LaneTable::withdraw(Ticket ticket, Time now, Actions& actions) {
  return impl_->withdraw(ticket, {now, actions});
}

void LaneTable::tick(Time now, Actions& actions) {
  impl_->tick({now, actions});
}

void LaneTable::loaded(const Resource& resource, const Outcome<FenceView>& outcome, Time now,
                       Actions& actions) {
  impl_->loaded(resource, outcome, {now, actions});
}

void LaneTable::raised(const Claim& claim, const Outcome<Ruling>& outcome, Time now, Actions& actions) {
  impl_->raised(claim, outcome, {now, actions});
}

void LaneTable::closed(const Resource& resource, Ticket ticket, const Outcome<FenceView>& outcome, Time now,
                       Actions& actions) {
  impl_->closed(resource, ticket, outcome, {now, actions});
}

void LaneTable::recorded(const Claim& claim, Ticket ticket, const Outcome<Ruling>& outcome, Time now,
                         Actions& actions) {
  impl_->recorded(claim, ticket, outcome, {now, actions});
}

void LaneTable::close_all(Time until) {
  impl_->close_all(until);
}

void LaneTable::forget_fences(Time now, Actions& actions) {
  impl_->forget_fences({now, actions});
}

bool LaneTable::is_overtaken(const Resource& resource, Token token) const {
  return impl_->is_overtaken(resource, token);
}

std::optional<Fault> LaneTable::quarantine(std::string_view name, Time now) const {
  return impl_->quarantine(name, now);
}

std::optional<Time> LaneTable::due() const {
  return impl_->due();
}

bool LaneTable::is_settled(Time now) const {
  return impl_->is_settled(now);
}

LaneTable::Figures LaneTable::figures() const {
  return impl_->figures();
}

}  // namespace fenceguard::proxy
