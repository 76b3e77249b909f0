#pragma once

// LeaseLister: what a token source offers beside TokenSource if it can say which leases are live. Not every
// one can: where each lock is a key or a node of its own, finding them all is a walk over the whole server.
//
// Thread safety and faults: as TokenSource.

#include <vector>

#include "guard/store/fence_store.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

struct LeasePage {
  std::vector<LeaseRecord> entries;  // sorted by resource, bytewise; their holders are left out
  bool has_more = false;             // ask again after the last entry's resource
};

class LeaseLister {
 public:
  virtual ~LeaseLister() = default;
  // The live leases that the listing names, each as it was at some moment of the call.
  [[nodiscard]] virtual LeasePage list_leases(const FenceListing& listing) = 0;
};

}  // namespace fenceguard
