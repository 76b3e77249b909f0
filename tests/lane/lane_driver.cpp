#include "tests/lane/lane_driver.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace fenceguard::test {

using namespace proxy;

Claim LaneDriver::claim(const std::string& resource, std::int64_t token, std::optional<int> sequence,
                        const std::string& holder) {
  Claim claim{Resource{resource}, Token{token}, Holder{holder.empty() ? fmt::format("h{}", token) : holder},
              std::nullopt};
  return sequence ? claim.with(Sequence{*sequence}) : claim;
}

Ticket LaneDriver::ask(Kind kind, std::vector<Claim> claims) {
  const Ticket ticket = next_++;
  states_[ticket] = "waiting";
  Actions actions;
  table.ask({ticket, kind, std::move(claims)}, {now, actions});
  take(std::move(actions));
  return ticket;
}

Ticket LaneDriver::write(const std::string& resource, std::int64_t token, std::optional<int> sequence,
                         const std::string& holder) {
  return ask(Kind::write, {claim(resource, token, sequence, holder)});
}

Ticket LaneDriver::advance(const std::string& resource, std::int64_t token) {
  return ask(Kind::advance, {claim(resource, token)});
}

Ticket LaneDriver::revoke(const std::string& resource) {
  return ask(Kind::revoke, {claim(resource, 1)});
}

void LaneDriver::end(Ticket ticket, Ending ending) {
  Actions actions;
  table.ended(ticket, ending, {now, actions});
  take(std::move(actions));
}

void LaneDriver::end_read(Ticket ticket) {
  Actions actions;
  table.end_read(ticket, {now, actions});
  take(std::move(actions));
}

bool LaneDriver::withdraw(Ticket ticket) {
  Actions actions;
  const bool is_withdrawn = table.withdraw(ticket, {now, actions});
  if (is_withdrawn) states_[ticket] = "withdrawn";
  take(std::move(actions));
  return is_withdrawn;
}

void LaneDriver::forget_fences() {
  Actions actions;
  table.forget_fences({now, actions});
  take(std::move(actions));
}

void LaneDriver::wait(Time time) {
  now += time;
  Actions actions;
  table.tick({now, actions});
  take(std::move(actions));
}

void LaneDriver::take(Actions actions) {
  for (const Action& action : actions) note(action);
  if (is_answering_) return;
  is_answering_ = true;
  while (!holds && !held_.empty()) answer();
  is_answering_ = false;
}

void LaneDriver::note(const Action& action) {
  const auto answered = [&](Ticket ticket, const std::string& state) {
    const std::string before = state == "left" ? "entered" : "waiting";
    EXPECT_EQ(states_[ticket], before) << "ticket " << ticket << " is told " << state;
    states_[ticket] = state;
  };
  if (const auto* entered = std::get_if<EnteredEvent>(&action)) {
    answered(entered->ticket, "entered");
    entries_.emplace(entered->ticket, *entered);
    entered_.push_back(entered->ticket);
  } else if (const auto* refused = std::get_if<RefusedEvent>(&action)) {
    answered(refused->ticket, to_string(refused->ruling.verdict));
    refusals_.emplace(refused->ticket, *refused);
  } else if (const auto* failed = std::get_if<FailedEvent>(&action)) {
    answered(failed->ticket, to_string(failed->fault.kind));
    faults_.emplace(failed->ticket, failed->fault);
  } else if (const auto* left = std::get_if<LeftEvent>(&action)) {
    answered(left->ticket, "left");
    if (left->fault) faults_.emplace(left->ticket, *left->fault);
  } else {
    held_.push_back(action);
  }
}

void LaneDriver::answer(const std::optional<Fault>& fault, bool is_applied) {
  ASSERT_FALSE(held_.empty());
  const Action call = std::move(held_.front());
  held_.pop_front();
  answer_call(call, fault, is_applied);
}

void LaneDriver::answer_all() {
  while (!held_.empty()) answer();
}

void LaneDriver::answer_last(const std::optional<Fault>& fault) {
  ASSERT_FALSE(held_.empty());
  const Action call = std::move(held_.back());
  held_.pop_back();
  answer_call(call, fault, true);
}

void LaneDriver::answer_call(const Action& call, const std::optional<Fault>& fault, bool is_applied) {
  Actions actions;
  // As PendingFencing does it.
  const auto mark_pending = [&](const Resource& resource, const std::optional<Fence>& fence) {
    auto& pending = pending_fencing[resource.name()];
    if (cuts_off && pending == 0 && fence && !fence->closed) pending = fence->token.value();
    return pending;
  };
  const auto rule = [&](const Claim& claim) {
    FenceView& view = store[claim.resource.name()];
    const Ruling ruling = judge(view, claim);
    if (ruling.changed && is_applied) view.record = ruling.fence;
    return ruling;
  };
  if (const auto* load = std::get_if<Load>(&call)) {
    const auto& name = load->resource.name();
    table.loaded(load->resource, outcome(fault, store[name]), {now, actions}, pending_fencing[name]);
  } else if (const auto* raise = std::get_if<Raise>(&call)) {
    const auto before = store[raise->claim.resource.name()].record;
    const auto ruling = rule(raise->claim);
    const auto pending =
        mark_pending(raise->claim.resource, ruling.raised && is_applied ? before : std::nullopt);
    table.raised(raise->claim, outcome(fault, ruling), {now, actions}, pending);
  } else if (const auto* close = std::get_if<Close>(&call)) {
    FenceView& view = store[close->resource.name()];
    const auto pending = mark_pending(close->resource, is_applied ? view.record : std::nullopt);
    if (view.record && is_applied) view.record->closed = true;
    table.closed(close->resource, close->ticket, outcome(fault, view), {now, actions}, pending);
  } else if (const auto* record = std::get_if<Record>(&call)) {
    table.recorded(record->claim, record->ticket, outcome(fault, rule(record->claim)), {now, actions});
  } else if (const auto* cut = std::get_if<CutOff>(&call)) {
    auto& pending = pending_fencing[cut->resource.name()];
    if (!fault && pending <= cut->old_token.value()) pending = 0;
    table.cut_off(cut->resource, cut->old_token, outcome(fault, true), {now, actions});
  }
  take(std::move(actions));
}

std::vector<std::string> LaneDriver::calls() const {
  std::vector<std::string> words;
  for (const Action& call : held_) {
    if (const auto* load = std::get_if<Load>(&call)) {
      words.push_back("load " + load->resource.name());
    } else if (const auto* raise = std::get_if<Raise>(&call)) {
      words.push_back(fmt::format("raise {} {}", raise->claim.resource.name(), raise->claim.token.value()));
    } else if (const auto* close = std::get_if<Close>(&call)) {
      words.push_back("close " + close->resource.name());
    } else if (const auto* record = std::get_if<Record>(&call)) {
      words.push_back(
          fmt::format("record {} {}", record->claim.resource.name(), record->claim.sequence->value()));
    } else if (const auto* cut = std::get_if<CutOff>(&call)) {
      words.push_back(
          fmt::format("cut {} {} {}", cut->resource.name(), cut->old_token.value(), cut->new_token.value()));
    }
  }
  return words;
}

std::string LaneDriver::state(Ticket ticket) const {
  return states_.at(ticket);
}

}  // namespace fenceguard::test
