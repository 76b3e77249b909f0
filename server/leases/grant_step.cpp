#include "server/leases/grant_step.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace fenceguard {

void GrantStep::start() {
  context_.run_blocking([self = shared_from_this()] { self->ask(); });
}

void GrantStep::ask() {
  ++attempts_;
  const auto asked_at = BootClock::now();
  std::variant<LockBusy, Grant> answer;
  try {
    std::visit([&answer](auto&& ending) { answer = std::move(ending); },
               context_.source.try_acquire(request_.resource, request_.holder, request_.ttl));
  } catch (...) {
    Fault fault = current_fault();
    if (fault.kind == FaultKind::unknown && !request_.is_named) give_back_unseen();
    return end(std::move(fault));
  }
  if (auto* grant = std::get_if<Grant>(&answer)) {
    grant->asked_at = asked_at;
    return advance(std::move(*grant));
  }
  end(std::get<LockBusy>(answer));
}

void GrantStep::advance(Grant grant) {
  // Numbers of its own source are not what the guard is to be protected from.
  const Claim claim = grant.claim.without_sequence().as_own_grant();
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
    context_.log.failed("lease", grant.claim, outcome.fault(), {request_.client, request_.trace_id});
    context_.run_blocking([self = shared_from_this(), grant, message = outcome.fault().message] {
      self->end_refused(grant, "The guard could not be advanced, so no lease is handed out: " + message);
    });
    return;
  }
  const Ruling& ruling = outcome.value();
  context_.metrics.count(ruling.verdict);
  context_.log.ruled("lease", grant.claim, ruling, {request_.client, request_.trace_id});
  if (ruling.verdict == Verdict::admitted) {
    if (ruling.changed) context_.metrics.count_advance();
    const bool is_fresh = BootClock::now() - grant.asked_at < request_.ttl / 4;
    if (is_fresh) return end(grant);
    return context_.run_renewal([self = shared_from_this(), grant] { self->renew(grant); });
  }
  context_.metrics.count_source_regression();
  context_.run_blocking([self = shared_from_this(), grant, ruling] { self->lift(grant, ruling); });
}

void GrantStep::renew(Grant grant) {
  const auto asked_at = BootClock::now();
  try {
    if (context_.source.renew(grant.claim, request_.ttl) == Renewal::lost) return end(Expired{});
  } catch (...) {
    return end_refused(
        grant, "The lease could not be renewed after the guard was advanced: " + current_fault().message);
  }
  grant.asked_at = asked_at;
  grant.ttl = std::min(grant.ttl, request_.ttl);
  end(std::move(grant));
}

// The source is behind the guard. It is lifted only while the lock is held: the advance may have taken longer
// than the lease lived, and then another holder's grant is the reason, not the source.
void GrantStep::lift(const Grant& grant, const Ruling& ruling) {
  try {
    const bool is_held = context_.source.renew(grant.claim, request_.ttl) == Renewal::renewed;
    if (is_held) context_.source.lift(grant.claim, ruling.highest);
  } catch (...) {
    return end_refused(
        grant, "The token source is behind the guard and could not be raised: " + current_fault().message);
  }
  // Also where the holder had it before: the guard refuses its token.
  const bool is_given_back = give_back(grant.claim);
  if (!is_given_back || attempts_ >= attempts_max) {
    return end(Fault{is_given_back ? FaultKind::unavailable : FaultKind::unknown,
                     "The token source stays behind what the guard has seen."});
  }
  ask();
}

// Ends without a new lease. One that the holder had before this step stays, and the holder need not know of
// it: the answer of the ask before may have been lost.
void GrantStep::end_refused(const Grant& grant, std::string message) {
  if (!grant.is_new)
    return end(Fault{FaultKind::unknown, message + "; the lease of an earlier ask may stand"});
  end(Fault{give_back(grant.claim) ? FaultKind::unavailable : FaultKind::unknown, std::move(message)});
}

// False if the lease may still be there.
bool GrantStep::give_back(const Claim& claim) {
  try {
    context_.source.release(claim);
    return true;
  } catch (const std::exception& error) {
    spdlog::warn("event=\"lease not given back\" resource={} token={} reason={}",
                 fenceguard::quoted(request_.resource.name()), claim.token.value(),
                 fenceguard::quoted(error.what()));
    return false;
  }
}

// A grant whose answer was lost, to a holder whose name no other client knows: no client will hear of it, so
// none should be locked out by it. Finding none proves nothing: the request may still be on its way.
void GrantStep::give_back_unseen() {
  try {
    const auto lease = context_.source.show(request_.resource);
    if (lease && lease->claim.holder == request_.holder) context_.source.release(lease->claim);
  } catch (const std::exception& error) {
    spdlog::warn("event=\"lease not given back\" resource={} reason={}",
                 fenceguard::quoted(request_.resource.name()), fenceguard::quoted(error.what()));
  }
}

}  // namespace fenceguard
