#pragma once

// Guard: the rule applied to one storage, atomically with the write, as a service sees it. What a write looks
// like differs from storage to storage (a transaction, a script, a request), so each adapter's guard has its
// own write(); what all share is the advance, and that is what the Runner needs.

#include "guard/judge.hpp"

namespace fenceguard {

class Guard {
 public:
  virtual ~Guard() = default;

  // Judges the claim alone and makes an admitted token durable before it returns; waits until every admitted
  // write with a lower token is over. A new holder advances before it reads, or a delayed write with an older
  // token can still land between its read and its first write, and is lost. The claim's sequence is not used
  // up. Throws Implausible, Unavailable or OutcomeUnknown. Thread safety: as the adapter says.
  [[nodiscard]] virtual Ruling advance(const Claim& claim) = 0;
};

}  // namespace fenceguard
