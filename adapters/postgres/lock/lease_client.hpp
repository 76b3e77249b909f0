#pragma once

// The lease functions of the schema fenceguard, one transaction each. What they do is said in
// sql/postgres/006_leases.sql; here their rows become values.
//
// Thread safety: all calls may be made from any thread at once. Faults: those of Pool::call().

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "adapters/postgres/lock/lease_pool.hpp"
#include "guard/source/counter_repair.hpp"
#include "guard/source/lease_lister.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::postgres {

class LeaseClient {
 public:
  using Ms = std::chrono::milliseconds;

  explicit LeaseClient(Pool& pool) : pool_{pool} {}

  // A lease by the server's clock.
  [[nodiscard]] std::variant<Grant, LockBusy> acquire(const Resource& resource, const Holder& holder, Ms ttl);

  // The token for a lock that the backend keeper_pid holds. LockBusy if a lease of another kind is live.
  [[nodiscard]] std::variant<Token, LockBusy> acquire_kept(const Resource& resource, const Holder& holder,
                                                           const std::string& kept_by, int keeper_pid);
  // Makes the row that '?lock=row' keeps locked.
  void prepare_row(const Resource& resource);

  [[nodiscard]] Renewal renew(const Claim& claim, Ms ttl);
  Release release(const Claim& claim);

  // Ends the lease; where a backend keeps it, returns when that is gone, or has not gone for end_wait.
  Release end(const Resource& resource);

  [[nodiscard]] std::optional<LeaseRecord> show(const Resource& resource);
  // Without their holders.
  [[nodiscard]] LeasePage list(const FenceListing& listing);

  void raise(Token mark);
  void raise_far(Token mark, const std::string& done_by);
  Token lower(Token mark, const std::string& done_by);
  [[nodiscard]] Token draw();
  [[nodiscard]] Token lowest_live();

 private:
  static constexpr Ms end_wait{5'000};
  void wait_until_gone(int pid);

  Pool& pool_;
};

}  // namespace fenceguard::postgres
