#pragma once

// LeaseClient: the lease procedures of the fences' database, one call each. What they do is said in
// sql/mariadb/005_leases.sql; here their rows become values.
//
// Thread safety: all calls may be made from any thread at once. Faults: Unavailable, OutcomeUnknown.

#include <chrono>
#include <optional>
#include <string>
#include <variant>

#include "adapters/mariadb/lock/lease_pool.hpp"
#include "guard/source/counter_repair.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::mariadb {

// A row of acquire() or acquire_named().
[[nodiscard]] std::variant<Grant, LockBusy> grant_of(const Rows& rows, const Resource& resource,
                                                     const Holder& holder, std::chrono::milliseconds ttl);

class LeaseClient {
 public:
  using Ms = std::chrono::milliseconds;

  explicit LeaseClient(const Address& address);

  // Leases by the server's clock.
  [[nodiscard]] std::variant<Grant, LockBusy> acquire(const Resource& resource, const Holder& holder, Ms ttl);
  [[nodiscard]] Renewal renew(const Claim& claim, Ms ttl);
  Release release(const Claim& claim);

  // Ends the lease; where a session keeps it, returns when its lock is free, or has not been for end_wait.
  Release end(const Resource& resource);

  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource);
  // Without their holders.
  [[nodiscard]] LeasePage list(const FenceListing& listing);

  void raise(const Resource& resource, Token mark);
  void raise_far(Token mark, const std::string& done_by);
  Token lower(Token mark, const std::string& done_by);
  [[nodiscard]] Token draw();
  [[nodiscard]] Token lowest_live();

 private:
  static constexpr Ms end_wait{5'000};

  Pool pool_;
  const std::string schema_;  // quoted
};

}  // namespace fenceguard::mariadb
