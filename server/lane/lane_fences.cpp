#include "server/lane/lane_scheduler.hpp"

namespace fenceguard::proxy {
namespace {

Outcome<Ruling> outcome_of(Entry entry) {
  if (auto* entered = std::get_if<EnteredEvent>(&entry)) return std::move(entered->rulings.front());
  if (auto* refused = std::get_if<RefusedEvent>(&entry)) return std::move(refused->ruling);
  return std::get<FailedEvent>(std::move(entry)).fault;
}

}  // namespace

void LaneScheduler::advance(Claim claim, Done<Ruling> done) {
  Ask ask{new_ticket(), Kind::advance, {std::move(claim)}};
  if (auto entry = enter(std::move(ask), [done](Entry late) { done(outcome_of(std::move(late))); }))
    done(outcome_of(*std::move(entry)));
}

void LaneScheduler::compact(Token lowest_live, Done<Compaction> done) {
  if (pending_fencing_ != nullptr) {
    // A holder whose lease is over may live on, and its fence alone tells that it is to be cut off.
    return done(Fault{FaultKind::unavailable,
                      "a guard with --fence-method keeps the fences of those whom it may have to cut off: to "
                      "compact, start it without"});
  }
  const auto then = [this, done = std::move(done)](Outcome<Compaction> outcome) {
    forget_fences();  // also after a fault: it goes step by step
    done(std::move(outcome));
  };
  store_.compact(lowest_live, pending_.track<Compaction>(then));
}

void LaneScheduler::show(Resource resource, Done<FenceView> done) {
  store_.show(std::move(resource), std::move(done));
}

void LaneScheduler::list(FenceListing listing, Done<FencePage> done) {
  store_.list(std::move(listing), std::move(done));
}

void LaneScheduler::init(std::int64_t floor, Done<std::int64_t> done) {
  // The state may have been restored, and its mark with it. Before the call, because a claim may come with
  // its answer.
  if (!is_new_) {
    const std::scoped_lock lock{mutex_};
    table_.close_all(now() + settle_, LaneTable::not_shown);
  }
  const auto then = [this, done = std::move(done)](Outcome<std::int64_t> outcome) {
    forget_fences();
    done(std::move(outcome));
  };
  store_.init(floor, pending_.track<std::int64_t>(then));
}

void LaneScheduler::rebase(Rebase, Done<FenceView> done) {
  done(Fault{FaultKind::unavailable,
             "a running guard's fences cannot be set by hand: stop the guard, then run 'fenceguard fence "
             "rebase --storage sqlite:STATE' with the file of its --state"});
}

bool LaneScheduler::is_overtaken(const Resource& resource, Token token) const {
  const std::scoped_lock lock{mutex_};
  return table_.is_overtaken(resource, token);
}

std::optional<Fault> LaneScheduler::quarantine(std::string_view name) const {
  const std::scoped_lock lock{mutex_};
  return table_.quarantine(name, now());
}

std::vector<LaneTable::View> LaneScheduler::list_lanes(const FenceListing& listing,
                                                       LaneTable::Which which) const {
  const std::scoped_lock lock{mutex_};
  return table_.list(listing, which, now());
}

void LaneScheduler::watch_raises(std::function<void(const Claim&)> told) {
  const std::scoped_lock lock{raises_mutex_};
  told_of_raise_ = std::move(told);
}

void LaneScheduler::tell_raise(const Claim& claim) noexcept {
  try {
    const std::scoped_lock lock{raises_mutex_};
    if (told_of_raise_) told_of_raise_(claim);
  } catch (...) {
    // Out of memory: an event is missing, and the fence is raised all the same.
  }
}

LaneTable::Figures LaneScheduler::figures() const {
  const std::scoped_lock lock{mutex_};
  return table_.figures();
}

}  // namespace fenceguard::proxy
