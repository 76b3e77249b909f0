#include "adapters/mariadb/lock/named_lock_source.hpp"

#include <algorithm>
#include <vector>

#include "adapters/mariadb/fences/rulings.hpp"
#include "guard/error.hpp"

namespace fenceguard::mariadb {
namespace {

constexpr std::size_t idle_max = 8;

}  // namespace

NamedLockSource::NamedLockSource(const Address& address) : address_{address}, calls_{address} {
  expirer_ = std::jthread{[this](const std::stop_token& stop) { expire(stop); }};
}

NamedLockSource::~NamedLockSource() {
  expirer_.request_stop();
  expirer_.join();
  for (const auto& [resource, lease] : held_) {
    const std::scoped_lock lock{lease->mutex};
    (void)let_go(*lease);
  }
}

std::unique_ptr<Session> NamedLockSource::take() {
  const std::scoped_lock lock{mutex_};
  if (idle_.empty()) return std::make_unique<Session>(address_);
  auto session = std::move(idle_.back());
  idle_.pop_back();
  return session;
}

void NamedLockSource::give_back(std::unique_ptr<Session> session) {
  const std::scoped_lock lock{mutex_};
  if (idle_.size() < idle_max) idle_.push_back(std::move(session));
}

std::variant<Grant, Held> NamedLockSource::try_acquire(const Resource& resource, const Holder& holder,
                                                       Ms ttl) {
  require_sensible_ttl(ttl);
  const auto asked_at = BootClock::now();
  if (const auto lease = find(resource); lease && lease->claim.holder == holder) {
    const std::scoped_lock lock{lease->mutex};
    if (confirm(*lease)) {
      lease->expires_at = std::max(lease->expires_at, asked_at + ttl);
      return Grant{lease->claim, ttl, false, asked_at};
    }
  }
  // One on which this fails goes, and its lock with it.
  auto session = take();
  const auto rows =
      session->run(Stage::at_commit, "acquiring " + resource.name(), [&](Connection& connection) {
        return connection.call("acquire_named", {resource.name(), std::to_string(ttl.count()), holder.id()});
      });
  auto answer = grant_of(rows, resource, holder, ttl);
  if (std::holds_alternative<Held>(answer)) {
    give_back(std::move(session));
    return answer;
  }
  auto& grant = std::get<Grant>(answer);
  grant.asked_at = asked_at;
  const auto lease = std::make_shared<SessionLease>(grant.claim, std::move(session));
  lease->expires_at = asked_at + ttl;
  const std::scoped_lock lock{mutex_};
  held_.insert_or_assign(resource, lease);
  expiries_changed_.notify_all();
  return answer;
}

Renewal NamedLockSource::renew(const Claim& claim, Ms ttl) {
  require_sensible_ttl(ttl);
  const auto lease = find(claim.resource);
  if (!lease || lease->claim != claim.without_sequence()) return Renewal::lost;
  const std::scoped_lock lock{lease->mutex};
  const auto asked_at = BootClock::now();
  if (!confirm(*lease)) return Renewal::lost;
  lease->expires_at = asked_at + ttl;
  expiries_changed_.notify_all();
  return Renewal::renewed;
}

// Whether the lease is held: its time is not over, and its session, which is never opened anew, has its lock.
// If not, or if that is not certain, it is over for good.
bool NamedLockSource::confirm(SessionLease& lease) {
  if (!lease.session) return false;
  try {
    const auto rows = lease.session->run_if_open(
        "renewing " + lease.claim.resource.name(),
        [&](Connection& connection) { return connection.call("confirm_named", arguments_of(lease.claim)); });
    if (BootClock::now() < lease.expires_at && number_in(rows, 0) != 0) return true;
  } catch (const Error&) {
    lease.session.reset();
  }
  (void)let_go(lease);
  forget(lease);
  return false;
}

Release NamedLockSource::release(const Claim& claim) {
  const auto lease = find(claim.resource);
  if (!lease || lease->claim != claim.without_sequence()) return Release::not_held;
  const std::scoped_lock lock{lease->mutex};
  forget(*lease);
  return let_go(*lease);
}

Release NamedLockSource::let_go(SessionLease& lease) {
  auto session = std::move(lease.session);
  if (!session) return Release::not_held;
  try {
    const auto rows =
        session->run_if_open("releasing " + lease.claim.resource.name(), [&](Connection& connection) {
          return connection.call("release_named", {lease.claim.resource.name()});
        });
    give_back(std::move(session));
    return number_in(rows, 0) != 0 ? Release::released : Release::not_held;
  } catch (const std::exception&) {
    return Release::not_held;  // the lock goes with its session, which ends here
  }
}

std::optional<LeaseRecord> NamedLockSource::show(const Resource& resource) {
  auto shown = calls_.show(resource);
  const auto lease = find(resource);
  // How long another process goes on without renewing is known to that process.
  if (!shown || shown->remaining || !lease || lease->claim != shown->claim) return shown;
  const std::scoped_lock lock{lease->mutex};
  shown->remaining = std::max(std::chrono::ceil<Ms>(lease->expires_at - BootClock::now()), Ms{0});
  return shown;
}

NamedLockSource::LeasePtr NamedLockSource::find(const Resource& resource) {
  const std::scoped_lock lock{mutex_};
  const auto found = held_.find(resource);
  return found == held_.end() ? nullptr : found->second;
}

void NamedLockSource::forget(const SessionLease& lease) {
  const std::scoped_lock lock{mutex_};
  const auto found = held_.find(lease.claim.resource);
  if (found != held_.end() && found->second.get() == &lease) held_.erase(found);
}

// Ends what was not renewed in time.
void NamedLockSource::expire(const std::stop_token& stop) {
  // Short, because the clock of a condition variable stands still while the machine is suspended.
  static constexpr std::chrono::nanoseconds look_again = std::chrono::seconds{1};
  static constexpr std::chrono::nanoseconds busy = Ms{20};
  while (!stop.stop_requested()) {
    std::vector<LeasePtr> all;
    {
      const std::scoped_lock lock{mutex_};
      for (const auto& [resource, lease] : held_) all.push_back(lease);
    }
    auto next = BootClock::now() + look_again;
    for (const auto& lease : all) {
      const std::unique_lock lock{lease->mutex, std::try_to_lock};
      if (!lock) {
        next = std::min(next, BootClock::now() + busy);
      } else if (BootClock::now() < lease->expires_at) {
        next = std::min(next, lease->expires_at);
      } else {
        forget(*lease);
        (void)let_go(*lease);
      }
    }
    all.clear();
    std::unique_lock lock{mutex_};
    expiries_changed_.wait_for(lock, stop, next - BootClock::now(), [] { return false; });
  }
}

}  // namespace fenceguard::mariadb
