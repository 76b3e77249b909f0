#pragma once

// Leases that live by a connection ('?lock=named'): each has a session of its own, which holds a lock of the
// server's (GET_LOCK) and has committed the number beside it. Such a lease belongs to the source that granted
// it and ends with its process, with its session, or when it was not renewed for its time to live, whichever
// comes first; the last is seen to by a thread here, which a stopped process does not run.
//
// Thread safety: all calls may be made from any thread at once.

#include <memory>
#include <mutex>
#include <vector>

#include "adapters/mariadb/lock/lease_client.hpp"
#include "guard/source/session_leases.hpp"

namespace fenceguard::mariadb {

class NamedLockSource : public TokenSource, public LeaseLister, public CounterRepair {
 public:
  using Ms = std::chrono::milliseconds;

  // Its destructor frees what is still held.
  explicit NamedLockSource(const Address& address) : address_{address}, calls_{address} {}

  [[nodiscard]] std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                                          Ms ttl) override;
  [[nodiscard]] Renewal renew(const Claim& claim, Ms ttl) override { return leases_.renew(claim, ttl); }
  Release release(const Claim& claim) override { return leases_.release(claim); }
  Release end(const Resource& resource) override { return calls_.end(resource); }
  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource) override {
    return leases_.with_time(calls_.show(resource));
  }
  [[nodiscard]] LeasePage list_leases(const FenceListing& listing) override { return calls_.list(listing); }
  void raise(const Resource& resource, Token mark) override { calls_.raise(resource, mark); }
  void raise_far(Token mark, const std::string& done_by) override { calls_.raise_far(mark, done_by); }
  Token lower(Token mark, const std::string& done_by) override { return calls_.lower(mark, done_by); }
  [[nodiscard]] Token draw() override { return calls_.draw(); }
  [[nodiscard]] std::optional<Token> lowest_live() override { return calls_.lowest_live(); }
  [[nodiscard]] bool lives_by_connection() const noexcept override { return true; }

 private:
  using Leases = SessionLeases<Session>;

  [[nodiscard]] std::unique_ptr<Session> take();
  void give_back(std::unique_ptr<Session> session);
  [[nodiscard]] static bool is_held(Leases::Lease& lease);
  Release let_go(Leases::Lease& lease);

  const Address address_;
  LeaseClient calls_;
  std::mutex mutex_;  // guards the following
  std::vector<std::unique_ptr<Session>> idle_;
  Leases leases_{{.is_held = [](Leases::Lease& lease, Ms) { return is_held(lease); },
                  .let_go = [this](Leases::Lease& lease) { return let_go(lease); }}};
};

}  // namespace fenceguard::mariadb
