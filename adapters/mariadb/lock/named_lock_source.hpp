#pragma once

// Leases that live by a connection ('?lock=named'): each has a session of its own, which holds a lock of the
// server's (GET_LOCK) and has committed the number beside it. Such a lease belongs to the source that granted
// it and ends with its process, with its session, or when it was not renewed for its time to live, whichever
// comes first; the last is seen to by a thread here, which a stopped process does not run.
//
// Thread safety: all calls may be made from any thread at once.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

#include "adapters/mariadb/lock/lease_client.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::mariadb {

class NamedLockSource : public TokenSource, public LeaseLister {
 public:
  using Ms = std::chrono::milliseconds;

  explicit NamedLockSource(const Address& address);
  // Frees what is still held.
  ~NamedLockSource() override;

  [[nodiscard]] std::variant<Grant, Held> try_acquire(const Resource& resource, const Holder& holder,
                                                      Ms ttl) override;
  [[nodiscard]] Renewal renew(const Claim& claim, Ms ttl) override;
  Release release(const Claim& claim) override;
  Release end(const Resource& resource) override { return calls_.end(resource); }
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource) override;
  [[nodiscard]] LeasePage list_leases(const FenceListing& listing) override { return calls_.list(listing); }
  void raise(const Resource& resource, Token mark) override { calls_.raise(resource, mark); }
  [[nodiscard]] Token draw() override { return calls_.draw(); }
  [[nodiscard]] std::optional<Token> lowest_live() override { return calls_.lowest_live(); }
  [[nodiscard]] bool lives_by_connection() const noexcept override { return true; }

 private:
  // A lease granted here.
  struct SessionLease {
    SessionLease(Claim c, std::unique_ptr<Session> s) : claim{std::move(c)}, session{std::move(s)} {}
    const Claim claim;
    std::mutex mutex;                  // guards the rest
    std::unique_ptr<Session> session;  // none: it is over
    BootClock::time_point expires_at{};
  };
  using LeasePtr = std::shared_ptr<SessionLease>;

  [[nodiscard]] std::unique_ptr<Session> take();
  void give_back(std::unique_ptr<Session> session);
  // REQUIRES of both: lease.mutex is held.
  [[nodiscard]] bool confirm(SessionLease& lease);
  Release let_go(SessionLease& lease);
  [[nodiscard]] LeasePtr find(const Resource& resource);
  void forget(const SessionLease& lease);
  void expire(const std::stop_token& stop);

  const Address address_;
  LeaseClient calls_;
  std::mutex mutex_;  // guards the following
  std::map<Resource, LeasePtr> held_;
  std::vector<std::unique_ptr<Session>> idle_;
  std::condition_variable_any expiries_changed_;
  std::jthread expirer_;
};

}  // namespace fenceguard::mariadb
