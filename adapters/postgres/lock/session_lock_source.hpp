#pragma once

// Leases that live by a connection ('?lock=row', '?lock=advisory'): each has a SessionManager, which holds
// the lock at the server, and a token that another connection drew and committed before the lease was handed
// out. Such a lease belongs to the source that granted it and ends with its process, with the manager's
// session, or when it was not renewed for its time to live, whichever comes first; the last is seen to by a
// thread here, which a stopped process does not run.
//
// Thread safety: all calls may be made from any thread at once.

#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "adapters/postgres/lock/lease_client.hpp"
#include "adapters/postgres/lock/release_listener.hpp"
#include "adapters/postgres/lock/session_manager.hpp"
#include "guard/source/acquire_deadline.hpp"
#include "guard/source/session_leases.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::postgres {

class SessionLockSource : public TokenSource, public LeaseLister, public CounterRepair {
 public:
  using Ms = std::chrono::milliseconds;

  // Its destructor frees what is still held.
  SessionLockSource(const std::vector<Address>& addresses, LockKind kept_by);

  [[nodiscard]] std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                                          Ms ttl) override;
  [[nodiscard]] Renewal renew(const Claim& claim, Ms ttl) override { return leases_.renew(claim, ttl); }
  Release release(const Claim& claim) override { return leases_.release(claim); }
  Release end(const Resource& resource) override { return calls_.end(resource); }
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource) override {
    return leases_.with_time(calls_.show(resource));
  }
  [[nodiscard]] LeasePage list_leases(const FenceListing& listing) override { return calls_.list(listing); }
  void raise(const Resource&, Token mark) override { calls_.raise(mark); }
  void raise_far(Token mark, const std::string& done_by) override { calls_.raise_far(mark, done_by); }
  Token lower(Token mark, const std::string& done_by) override { return calls_.lower(mark, done_by); }
  [[nodiscard]] Token draw() override { return calls_.draw(); }
  [[nodiscard]] std::optional<Token> lowest_live() override { return calls_.lowest_live(); }
  [[nodiscard]] bool lives_by_connection() const noexcept override { return true; }

  // Waits at the server, in the queue for the lock itself.
  [[nodiscard]] std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                                  const AcquireOptions& options) override;

 private:
  using Leases = SessionLeases<SessionManager>;
  // A thread that waits at the server.
  struct Waiting {
    const Resource& resource;
    const Holder& holder;
    AcquireDeadline* deadline = nullptr;  // none: it asks once
    // By a stop request, or because the same holder was granted the lock meanwhile.
    std::stop_source interrupt{};
  };

  [[nodiscard]] std::variant<Grant, LockBusy> attempt(Waiting& waiting, Ms ttl, Ms wait);
  [[nodiscard]] Grant hand_out(const Waiting& waiting, Token token, std::unique_ptr<SessionManager> session,
                               Ms ttl, BootClock::time_point asked_at);
  [[nodiscard]] bool is_held(Leases::Lease& kept, Ms ttl);
  [[nodiscard]] Release let_go(Leases::Lease& kept);

  Pool pool_;
  LeaseClient calls_{pool_};
  ReleaseListener listener_;
  const LockKind lock_kind_;
  std::mutex mutex_;  // guards waiting_
  std::list<Waiting*> waiting_;
  Leases leases_{{.is_held = [this](Leases::Lease& kept, Ms ttl) { return is_held(kept, ttl); },
                  .let_go = [this](Leases::Lease& kept) { return let_go(kept); }}};
};

}  // namespace fenceguard::postgres
