#include "adapters/postgres/lock/session_lock_source.hpp"

#include "guard/error.hpp"
#include "guard/source/scoped_list_entry.hpp"

namespace fenceguard::postgres {
namespace {

[[noreturn]] void raise_keeper_lost(const Resource& resource) {
  throw Unavailable("acquiring " + resource.name() +
                    ": the connection that kept the lock was lost; nothing is held");
}

}  // namespace

SessionLockSource::SessionLockSource(const std::vector<Address>& addresses, LockKind kept_by)
    : pool_{addresses}, listener_{addresses.front()}, lock_kind_{kept_by} {}

std::variant<Grant, LockBusy> SessionLockSource::try_acquire(const Resource& resource, const Holder& holder,
                                                             Ms ttl) {
  require_sensible_ttl(ttl);
  Waiting waiting{resource, holder};
  return attempt(waiting, ttl, Ms{0});
}

std::optional<Grant> SessionLockSource::wait_acquire(const Resource& resource, const Holder& holder,
                                                     const AcquireOptions& options) {
  require_sensible_ttl(options.ttl);
  AcquireDeadline deadline{options};
  std::optional<ReleaseListener::Watch> watch;
  for (;;) {
    Waiting waiting{resource, holder, &deadline};
    const std::stop_callback on_stop{options.stop, [&waiting] { waiting.interrupt.request_stop(); }};
    const ScopedListEntry listed{mutex_, waiting_, waiting};  // others can interrupt this thread
    const auto answer = deadline.ask([&] { return attempt(waiting, options.ttl, deadline.left()); });
    if (const auto* grant = std::get_if<Grant>(&answer)) return *grant;
    if (deadline.gives_up()) return std::nullopt;
    if (waiting.interrupt.stop_requested()) continue;  // the same holder has it
    // A lease of another kind has it, or the server is away.
    const auto until = deadline.until(std::get<LockBusy>(answer).retry_after);
    if (watch) {
      watch->wait(until);
    } else {
      watch.emplace(listener_, resource, until, options.stop);
    }
  }
}

std::variant<Grant, LockBusy> SessionLockSource::attempt(Waiting& waiting, Ms ttl, Ms wait) {
  const auto& [resource, holder, deadline, interrupt] = waiting;
  if (auto again = leases_.grant_again(resource, holder, ttl)) return *std::move(again);
  if (lock_kind_ == LockKind::row) calls_.prepare_row(resource);
  auto session = std::make_unique<SessionManager>(pool_, lock_kind_, resource);
  if (deadline != nullptr) deadline->reached();
  if (!session->take(wait, interrupt.get_token())) return LockBusy{ttl};
  const auto asked_at = BootClock::now();
  try {
    const auto answer = calls_.acquire_kept(resource, holder, to_string(lock_kind_), session->pid());
    if (const auto* token = std::get_if<Token>(&answer)) {
      return hand_out(waiting, *token, std::move(session), ttl, asked_at);
    }
    if (session->free()) session->recycle();
    return std::get<LockBusy>(answer);
  } catch (const InvalidInput&) {
    // The server grants nothing to a backend that does not hold the lock: the session manager was lost
    // before.
    if (session && !session->is_alive()) raise_keeper_lost(resource);
    throw;
  } catch (...) {
    if (session) session->free();
    throw;
  }
}

Grant SessionLockSource::hand_out(const Waiting& waiting, Token token,
                                  std::unique_ptr<SessionManager> session, Ms ttl,
                                  BootClock::time_point asked_at) {
  const Claim claim{waiting.resource, token, waiting.holder, std::nullopt};
  // Another holder may have had the lock between the session's end and the draw.
  if (!session->is_alive()) {
    (void)calls_.release(claim);
    raise_keeper_lost(claim.resource);
  }
  const auto grant = leases_.add(claim, std::move(session), ttl, asked_at);
  // One that waits is in the list before it looks for a grant, and so finds this one or is told.
  const std::scoped_lock lock{mutex_};
  for (auto* other : waiting_) {
    if (other != &waiting && other->resource == claim.resource && other->holder == claim.holder) {
      other->interrupt.request_stop();
    }
  }
  return grant;
}

// Its session is alive, and its record can be renewed.
bool SessionLockSource::is_held(Leases::Lease& kept, Ms ttl) {
  return kept.session->is_alive() && calls_.renew(kept.claim, ttl) == Renewal::renewed;
}

// Ends a lease that was granted here: first the lock, then its record, so that a client that finds no record
// finds no lock either.
Release SessionLockSource::let_go(Leases::Lease& kept) {
  const auto session = std::move(kept.session);
  if (!session) return Release::not_held;
  const bool was_held = session->free();
  try {
    (void)calls_.release(kept.claim);
    session->recycle();
  } catch (const Error&) {
    // The record stays, and counts for as long as this session lives: it ends here.
  }
  return was_held ? Release::released : Release::not_held;
}

}  // namespace fenceguard::postgres
