#pragma once

// LeaseLister: what a token source offers beside TokenSource if it can say which leases are live. Not every
// one can: where the locks lie on several servers, no one of them knows. Where each lock is a key or a node
// of its own, they are found by a walk, which has a limit: beyond it the call is Unavailable, and says so.
//
// Thread safety and faults: as TokenSource.

#include <vector>

#include "guard/store/fence_store.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

struct LeasePage {
  std::vector<LeaseRecord> entries;  // sorted by resource, bytewise; their holders are left out
  bool has_more = false;             // ask again after the last entry's resource

  // Adds a lease, or finds the page full: then there is more, and no further one is of use.
  [[nodiscard]] bool take(LeaseRecord lease, const FenceListing& listing) {
    has_more = entries.size() >= listing.limit;
    if (has_more) return false;
    lease.claim.holder = Holder{};
    entries.push_back(std::move(lease));
    return true;
  }
};

class LeaseLister {
 public:
  virtual ~LeaseLister() = default;
  // The live leases that the listing names, each as it was at some moment of the call.
  [[nodiscard]] virtual LeasePage list_leases(const FenceListing& listing) = 0;
};

}  // namespace fenceguard
