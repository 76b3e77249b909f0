#include "server/lane/lane_store.hpp"

#include <utility>

#include "server/lane/store_call.hpp"

namespace fenceguard::proxy {

// What is pending is looked up behind the fence. What raises that, or closes it, is not decided on meanwhile,
// and a cut-off that ends in between is at most begun once more.
void LaneStore::load(const Resource& resource, Done<Loaded> done) noexcept {
  const auto answer = [this, resource, done = std::move(done)](const Outcome<FenceView>& view) noexcept {
    if (!view.ok()) return done(view.fault());
    PendingFencing* const fencing = cut_off_.pending();
    if (fencing == nullptr) return done(Loaded{view.value(), 0});
    const auto both = [view = view.value(), done](const Outcome<std::int64_t>& pending) noexcept {
      if (!pending.ok()) return done(pending.fault());
      done(Loaded{view, pending.value()});
    };
    call_store(both, [&] { fencing->pending(resource, both); });
  };
  call_store(answer, [&] {
    // A namespace that is not initialised shows no fence: its claims are refused.
    const StoreStatus status = fences_.status();
    if (status.state != StoreState::ready) return answer(Fault{FaultKind::unavailable, status.reason});
    fences_.show(resource, answer);
  });
}

void LaneStore::raise(const Raise& call, Done<RaiseResult> done) noexcept {
  const auto answer = [this, claim = call.claim,
                       done = std::move(done)](const Outcome<RaiseResult>& outcome) noexcept {
    if (outcome.ok() && outcome.value().ruling.changed) tell_raise(claim);
    done(outcome);
  };
  call_store(answer, [&] {
    // The state may have been opened with another bound. What it has seen only rises, so that of two claims
    // the second is not refused where the first was raised.
    const std::int64_t highest = jump_max_ > 0 ? fences_.status().highest : 0;
    if (is_implausible(call.claim, highest, jump_max_) ||
        (call.other && is_implausible(*call.other, highest, jump_max_))) {
      return answer(Fault{FaultKind::implausible,
                          "the token is further above the highest seen here than --max-jump allows"});
    }
    if (PendingFencing* const fencing = cut_off_.pending()) return fencing->raise(call.claim, answer);
    fences_.advance(call.claim, [answer](const Outcome<Ruling>& outcome) noexcept {
      if (!outcome.ok()) return answer(outcome.fault());
      answer(RaiseResult{outcome.value(), 0});
    });
  });
}

void LaneStore::close(const Resource& resource, const std::optional<Claim>& lease,
                      const std::optional<Claim>& finished, Done<Loaded> done) noexcept {
  call_store(done, [&] {
    PendingFencing* const fencing = cut_off_.pending();
    if (finished) return fencing->finish(*finished, done);
    if (fencing != nullptr) return fencing->revoke(resource, lease, done);
    fences_.revoke(resource, lease, [done](const Outcome<FenceView>& outcome) noexcept {
      if (!outcome.ok()) return done(outcome.fault());
      done(Loaded{outcome.value(), 0});
    });
  });
}

void LaneStore::record(const Claim& claim, Done<Ruling> done) noexcept {
  call_store(done, [&] { state_.record(claim, done); });
}

void LaneStore::mark_open(Done<bool> done) noexcept {
  call_store(done, [&] { state_.mark_open(done); });
}

void LaneStore::watch_raises(std::function<void(const Claim&)> told) {
  const std::scoped_lock lock{raises_mutex_};
  told_of_raise_ = std::move(told);
}

void LaneStore::tell_raise(const Claim& claim) noexcept {
  try {
    const std::scoped_lock lock{raises_mutex_};
    if (told_of_raise_) told_of_raise_(claim);
  } catch (...) {
    // Out of memory: an event is missing, and the fence is raised all the same.
  }
}

}  // namespace fenceguard::proxy
