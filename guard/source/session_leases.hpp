#pragma once

// SessionLeases: what a token source has granted whose leases live by a session of their own at the server.
// Such a lease ends with its session, or when it was not renewed for its time to live; the last is seen to by
// a thread here, which a stopped process does not run.
//
// Thread safety: all calls may be made from any thread at once.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "guard/error.hpp"
#include "guard/source/boot_condition.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

template <class Session>
class SessionLeases {
 public:
  using Ms = std::chrono::milliseconds;

  // A lease granted here.
  struct Lease {
    Lease(Claim c, std::unique_ptr<Session> s) : claim{std::move(c)}, session{std::move(s)} {}
    const Claim claim;
    std::mutex mutex;                  // guards the rest
    std::unique_ptr<Session> session;  // none: it is over
    BootClock::time_point expires_at{};
  };

  // Of the source. Both are called with the lease's mutex held.
  struct Calls {
    // Whether its session, of which there is one, still has the lock; what it throws passes.
    std::function<bool(Lease&, Ms ttl)> is_held;
    // Ends it, once: takes the session out.
    std::function<Release(Lease&)> let_go;
  };

  explicit SessionLeases(Calls calls) : calls_{std::move(calls)} {
    expirer_ = std::jthread{[this](const std::stop_token& stop) { expire(stop); }};
  }
  // Frees what is still held.
  ~SessionLeases() {
    expirer_.request_stop();
    expirer_.join();
    for (const auto& [resource, lease] : leases_) {
      try {
        const std::scoped_lock lock{lease->mutex};
        (void)calls_.let_go(*lease);
      } catch (const std::exception&) {
        // The lock goes with its session.
      }
    }
  }
  SessionLeases(const SessionLeases&) = delete;
  SessionLeases& operator=(const SessionLeases&) = delete;

  // A new one, in the place of what there was.
  Grant add(const Claim& claim, std::unique_ptr<Session> session, Ms ttl, BootClock::time_point asked_at) {
    const auto lease = std::make_shared<Lease>(claim, std::move(session));
    lease->expires_at = asked_at + ttl;
    const std::scoped_lock lock{mutex_};
    leases_.insert_or_assign(claim.resource, lease);
    has_changed_ = true;
    changed_.notify_all();
    return Grant{claim, ttl, true, asked_at};
  }

  // Again what this holder has; nothing if it has not.
  [[nodiscard]] std::optional<Grant> grant_again(const Resource& resource, const Holder& holder, Ms ttl) {
    const auto lease = find(resource);
    if (!lease || lease->claim.holder != holder) return std::nullopt;
    const std::scoped_lock lock{lease->mutex};
    const auto asked_at = BootClock::now();
    if (!confirm(*lease, ttl)) return std::nullopt;
    lease->expires_at = std::max(lease->expires_at, asked_at + ttl);
    return Grant{lease->claim, ttl, false, asked_at};
  }

  [[nodiscard]] Renewal renew(const Claim& claim, Ms ttl) {
    require_sensible_ttl(ttl);
    const auto lease = find(claim.resource);
    if (!lease || lease->claim != claim.without_sequence()) return Renewal::lost;
    const std::scoped_lock lock{lease->mutex};
    const auto asked_at = BootClock::now();
    if (!confirm(*lease, ttl)) return Renewal::lost;
    lease->expires_at = asked_at + ttl;
    const std::scoped_lock all{mutex_};
    has_changed_ = true;  // it may be shorter now
    changed_.notify_all();
    return Renewal::renewed;
  }

  Release release(const Claim& claim) {
    const auto lease = find(claim.resource);
    if (!lease || lease->claim != claim.without_sequence()) return Release::not_held;
    const std::scoped_lock lock{lease->mutex};
    forget(*lease);
    return calls_.let_go(*lease);
  }

  // What the server shows, with its time where it was granted here: how long another process goes on without
  // renewing is known to that process.
  [[nodiscard]] std::optional<LeaseRecord> with_time(std::optional<LeaseRecord> shown) {
    if (!shown || shown->remaining) return shown;
    const auto lease = find(shown->claim.resource);
    if (!lease || lease->claim != shown->claim) return shown;
    const std::scoped_lock lock{lease->mutex};
    shown->remaining = std::max(std::chrono::ceil<Ms>(lease->expires_at - BootClock::now()), Ms{0});
    return shown;
  }

 private:
  using LeasePtr = std::shared_ptr<Lease>;

  // Whether it is held: its time is not over, and its session has the lock. If not, it is over for good.
  bool confirm(Lease& lease, Ms ttl) {
    if (!lease.session) return false;
    if (BootClock::now() < lease.expires_at && calls_.is_held(lease, ttl)) return true;
    (void)calls_.let_go(lease);
    forget(lease);
    return false;
  }

  [[nodiscard]] LeasePtr find(const Resource& resource) {
    const std::scoped_lock lock{mutex_};
    const auto found = leases_.find(resource);
    return found == leases_.end() ? nullptr : found->second;
  }

  void forget(const Lease& lease) {
    const std::scoped_lock lock{mutex_};
    const auto found = leases_.find(lease.claim.resource);
    if (found != leases_.end() && found->second.get() == &lease) leases_.erase(found);
  }

  // Ends what was not renewed in time.
  void expire(const std::stop_token& stop) {
    static constexpr std::chrono::nanoseconds busy = Ms{20};
    while (!stop.stop_requested()) {
      std::vector<LeasePtr> all;
      {
        const std::scoped_lock lock{mutex_};
        has_changed_ = false;
        for (const auto& [resource, lease] : leases_) all.push_back(lease);
      }
      auto next = BootClock::time_point::max();
      for (const auto& lease : all) {
        const std::unique_lock lock{lease->mutex, std::try_to_lock};
        if (!lock) {
          next = std::min(next, BootClock::now() + busy);
        } else if (BootClock::now() < lease->expires_at) {
          next = std::min(next, lease->expires_at);
        } else {
          forget(*lease);
          (void)calls_.let_go(*lease);
        }
      }
      all.clear();
      std::unique_lock lock{mutex_};
      changed_.wait_until(lock, stop, next, [this] { return has_changed_; });
    }
  }

  const Calls calls_;
  std::mutex mutex_;  // guards leases_ and has_changed_; never held while a server is asked
  std::map<Resource, LeasePtr> leases_;
  bool has_changed_ = false;  // there may be an earlier end than what the expirer waits for
  BootCondition changed_;
  std::jthread expirer_;
};

}  // namespace fenceguard
