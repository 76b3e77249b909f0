#pragma once

// CounterRepair: what a token source offers beside TokenSource if an administrator can set its one counter by
// hand. That is the repair where a number that a client made up has used up nearly all there are, or where
// one that is right is further above the counter than raise() lifts it, which throws Implausible here for
// more than TokenSource::raise_max, or a limit that the owner set. Both leave a record of who did it.
//
// Thread safety and faults: as TokenSource.

#include <string>

#include "guard/token.hpp"

namespace fenceguard {

class CounterRepair {
 public:
  virtual ~CounterRepair() = default;
  // TokenSource::raise(), however far.
  virtual void raise_far(Token mark, const std::string& done_by) = 0;
  // Sets the counter back, so that the next number is the one after mark; answers where it stood. What was
  // granted above mark is granted again: fences that have seen such numbers refuse the new ones until they
  // are rebased, and a stale holder of such a number can write once its number is granted anew. Leases above
  // it end where the source can tell. Throws InvalidInput where the counter is not above mark.
  virtual Token lower(Token mark, const std::string& done_by) = 0;
};

}  // namespace fenceguard
