#include "adapters/postgres/lock/session_lock_source.hpp"

#include <algorithm>
#include <vector>

#include "guard/error.hpp"
#include "guard/source/listed.hpp"

namespace fenceguard::postgres {
namespace {

[[noreturn]] void raise_keeper_lost(const Resource& resource) {
  throw Unavailable("acquiring " + resource.name() +
                    ": the connection that kept the lock was lost; nothing is held");
}

}  // namespace

SessionLockSource::SessionLockSource(const std::vector<Address>& addresses, LockKind kept_by)
    : pool_{addresses}, listener_{addresses.front()}, lock_kind_{kept_by} {
  expirer_ = std::jthread{[this](const std::stop_token& stop) { expire(stop); }};
}

SessionLockSource::~SessionLockSource() {
  expirer_.request_stop();
  expirer_.join();
  for (const auto& [resource, kept] : kept_) {
    try {
      const std::scoped_lock lock{kept->mutex};
      (void)let_go(*kept);
    } catch (const std::exception&) {
      // The lock goes with its connection.
    }
  }
}

std::variant<Grant, Held> SessionLockSource::try_acquire(const Resource& resource, const Holder& holder,
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
    const Listed listed{mutex_, waiting_, waiting};  // others can interrupt this thread
    const auto answer = deadline.ask([&] { return attempt(waiting, options.ttl, deadline.left()); });
    if (const auto* grant = std::get_if<Grant>(&answer)) return *grant;
    if (deadline.gives_up()) return std::nullopt;
    if (waiting.interrupt.stop_requested()) continue;  // the same holder has it
    // A lease of another kind has it, or the server is away.
    const auto until = deadline.until(std::get<Held>(answer).retry_after);
    if (watch) {
      watch->wait(until);
    } else {
      watch.emplace(listener_, resource, until, options.stop);
    }
  }
}

std::variant<Grant, Held> SessionLockSource::attempt(Waiting& waiting, Ms ttl, Ms wait) {
  const auto& [resource, holder, deadline, interrupt] = waiting;
  if (const auto kept = find(resource)) {
    if (kept->claim.holder == holder) {
      if (auto grant = grant_again(*kept, ttl)) return *std::move(grant);
    }
  }
  if (lock_kind_ == LockKind::row) calls_.prepare_row(resource);
  auto session = std::make_unique<SessionManager>(pool_, lock_kind_, resource);
  if (deadline != nullptr) deadline->reached();
  if (!session->take(wait, interrupt.get_token())) return Held{ttl};
  const auto asked_at = BootClock::now();
  try {
    const auto answer = calls_.acquire_kept(resource, holder, to_string(lock_kind_), session->pid());
    if (const auto* token = std::get_if<Token>(&answer)) {
      return hand_out(waiting, *token, std::move(session), ttl, asked_at);
    }
    if (session->free()) session->recycle();
    return std::get<Held>(answer);
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
  const auto kept = std::make_shared<SessionLease>(claim, std::move(session));
  kept->expires_at = asked_at + ttl;
  const std::scoped_lock lock{mutex_};
  kept_.insert_or_assign(claim.resource, kept);
  for (auto* other : waiting_) {
    if (other != &waiting && other->resource == claim.resource && other->holder == claim.holder) {
      other->interrupt.request_stop();
    }
  }
  expiries_changed_.notify_all();
  return Grant{claim, ttl, true, asked_at};
}

std::optional<Grant> SessionLockSource::grant_again(SessionLease& kept, Ms ttl) {
  const std::scoped_lock lock{kept.mutex};
  const auto asked_at = BootClock::now();
  if (!confirm(kept, ttl)) return std::nullopt;
  kept.expires_at = std::max(kept.expires_at, asked_at + ttl);
  return Grant{kept.claim, ttl, false, asked_at};
}

Renewal SessionLockSource::renew(const Claim& claim, Ms ttl) {
  require_sensible_ttl(ttl);
  const auto kept = find(claim.resource);
  if (!kept || kept->claim != claim.without_sequence()) return Renewal::lost;
  const std::scoped_lock lock{kept->mutex};
  const auto asked_at = BootClock::now();
  if (!confirm(*kept, ttl)) return Renewal::lost;
  kept->expires_at = asked_at + ttl;
  expiries_changed_.notify_all();
  return Renewal::renewed;
}

// Whether the lease is held: its time is not over, its session is alive, and its record can be renewed. If
// not, it is over for good. REQUIRES: kept.mutex is held.
bool SessionLockSource::confirm(SessionLease& kept, Ms ttl) {
  if (!kept.session) return false;
  if (BootClock::now() < kept.expires_at && kept.session->is_alive() &&
      calls_.renew(kept.claim, ttl) == Renewal::renewed) {
    return true;
  }
  (void)let_go(kept);
  forget(kept);
  return false;
}

Release SessionLockSource::release(const Claim& claim) {
  const auto kept = find(claim.resource);
  if (!kept || kept->claim != claim.without_sequence()) return Release::not_held;
  const std::scoped_lock lock{kept->mutex};
  forget(*kept);
  return let_go(*kept);
}

// Ends a lease that was granted here: first the lock, then its record, so that a client that finds no record
// finds no lock either. REQUIRES: kept.mutex is held.
Release SessionLockSource::let_go(SessionLease& kept) {
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

std::optional<LeaseRecord> SessionLockSource::show(const Resource& resource) {
  auto shown = calls_.show(resource);
  const auto kept = find(resource);
  // How long another process goes on without renewing is known to that process.
  if (!shown || shown->remaining || !kept || kept->claim != shown->claim) return shown;
  const std::scoped_lock lock{kept->mutex};
  shown->remaining = std::max(std::chrono::ceil<Ms>(kept->expires_at - BootClock::now()), Ms{0});
  return shown;
}

SessionLockSource::KeptPtr SessionLockSource::find(const Resource& resource) {
  const std::scoped_lock lock{mutex_};
  const auto found = kept_.find(resource);
  return found == kept_.end() ? nullptr : found->second;
}

void SessionLockSource::forget(const SessionLease& kept) {
  const std::scoped_lock lock{mutex_};
  const auto found = kept_.find(kept.claim.resource);
  if (found != kept_.end() && found->second.get() == &kept) kept_.erase(found);
}

// Ends what was not renewed in time.
void SessionLockSource::expire(const std::stop_token& stop) {
  // Short, because the clock of a condition variable stands still while the machine is suspended.
  static constexpr std::chrono::nanoseconds look_again = std::chrono::seconds{1};
  static constexpr std::chrono::nanoseconds busy = Ms{20};
  while (!stop.stop_requested()) {
    std::vector<KeptPtr> all;
    {
      const std::scoped_lock lock{mutex_};
      for (const auto& [resource, kept] : kept_) all.push_back(kept);
    }
    auto next = BootClock::now() + look_again;
    for (const auto& kept : all) {
      const std::unique_lock lock{kept->mutex, std::try_to_lock};
      if (!lock) {
        next = std::min(next, BootClock::now() + busy);
      } else if (BootClock::now() < kept->expires_at) {
        next = std::min(next, kept->expires_at);
      } else {
        forget(*kept);
        (void)let_go(*kept);
      }
    }
    all.clear();
    std::unique_lock lock{mutex_};
    expiries_changed_.wait_for(lock, stop, next - BootClock::now(), [] { return false; });
  }
}

}  // namespace fenceguard::postgres
