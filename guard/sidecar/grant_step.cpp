#include "guard/sidecar/grant_step.hpp"

#include <spdlog/spdlog.h>

namespace fenceguard {

void GrantStep::start() {
  context_.run_blocking([self = shared_from_this()] { self->ask(); });
}

void GrantStep::ask() {
  ++attempts_;
  std::variant<Held, Grant> answer;
  try {
    std::visit([&answer](auto&& ending) { answer = std::move(ending); },
               context_.source.try_acquire(resource_, holder_, ttl_));
  } catch (...) {
    Fault fault = current_fault();
    // Nobody will hear of a grant whose answer was lost, so nobody may be locked out by it.
    if (fault.kind == FaultKind::unknown && give_back_unseen()) fault.kind = FaultKind::unavailable;
    return end(std::move(fault));
  }
  if (auto* grant = std::get_if<Grant>(&answer)) return advance(std::move(*grant));
  end(std::get<Held>(answer));
}

void GrantStep::advance(Grant grant) {
  const Claim claim = grant.claim.without_sequence();
  context_.fences.advance(
      claim, context_.pending.track<Ruling>(
                 [self = shared_from_this(), grant = std::move(grant)](const Outcome<Ruling>& outcome) {
                   self->advanced(grant, outcome);
                 }));
}

// On the store's thread: must not block.
void GrantStep::advanced(const Grant& grant, const Outcome<Ruling>& outcome) {
  if (!outcome.ok()) {
    context_.metrics.count(outcome.fault().kind);
    context_.log.failed("lease", resource_, outcome.fault());
    context_.run_blocking([self = shared_from_this(), grant, message = outcome.fault().message] {
      // One that the same holder had before was handed out, advanced, by another ask.
      if (grant.is_new) self->give_back(grant.claim);
      self->end(Fault{FaultKind::unavailable,
                      "The guard could not be advanced, so no lease was given: " + message});
    });
    return;
  }
  const Ruling& ruling = outcome.value();
  context_.metrics.count(ruling.verdict);
  context_.log.ruled("lease", grant.claim, ruling);
  if (ruling.verdict == Verdict::admitted) {
    if (ruling.changed) context_.metrics.count_advance();
    return end(grant);
  }
  context_.metrics.count_source_regression();
  context_.run_blocking([self = shared_from_this(), grant, ruling] { self->lift(grant, ruling); });
}

// The source is behind the guard. It is lifted only while the lock is held: the advance may have taken longer
// than the lease lived, and then somebody else's grant is the reason, not the source.
void GrantStep::lift(const Grant& grant, const Ruling& ruling) {
  try {
    const bool is_held = context_.source.renew(grant.claim, ttl_) == Renewal::renewed;
    if (is_held && ruling.highest > 0) context_.source.raise(resource_, Token{ruling.highest});
  } catch (...) {
    const Fault fault = current_fault();
    give_back(grant.claim);
    return end(Fault{FaultKind::unavailable,
                     "The token source is behind the guard and could not be raised: " + fault.message});
  }
  give_back(grant.claim);
  if (attempts_ >= attempts_max) {
    return end(Fault{FaultKind::unavailable, "The token source stays behind what the guard has seen."});
  }
  ask();
}

void GrantStep::give_back(const Claim& claim) {
  try {
    context_.source.release(claim);
  } catch (const std::exception& error) {
    spdlog::warn("event=\"lease not given back\" resource={} token={} reason={}", quoted(resource_.name()),
                 claim.token.value(), quoted(error.what()));
  }
}

// True if no lease of this holder is left at the source.
bool GrantStep::give_back_unseen() {
  try {
    const auto lease = context_.source.show(resource_);
    if (lease && lease->claim.holder == holder_) context_.source.release(lease->claim);
    return true;
  } catch (const std::exception&) {
    return false;  // the lease, if there is one, ends with its time to live
  }
}

}  // namespace fenceguard
