#pragma once

// HolderCutOff: cuts old holders off before a newer one enters, by a HolderFencer, and keeps in the state
// what is pending. The order, and what a guard that dies before the step leaves:
//
//   1  raise the fence, and in the same transaction record who is pending   nothing happened
//   2  run the fence methods, while the older writes drain                  the next guard finds it: on from
//   2 3  remove what is pending                                               likewise: the methods run twice
//   4  let the new holder enter, once the drain is over too                 nothing is pending
//
// From 1 on the old holder is refused, and until 4 the new one waits, whichever guard it asks, and however
// often: what it asks again finds its own token at the fence, and the fencing pending beside it.
//
// Thread safety: begin() before any claim; all other calls may be made from any thread.

#include "guard/store/lane_state.hpp"
#include "guard/store/pending_fencing.hpp"
#include "server/lane/holder_fencer.hpp"
#include "server/lane/lane_events.hpp"

namespace fenceguard::proxy {

class HolderCutOff {
 public:
  explicit HolderCutOff(LaneState& state) : pending_{dynamic_cast<PendingFencing*>(&state)} {}

  // From now on old holders are cut off by it. Throws InvalidInput where the state cannot keep what is
  // pending.
  void begin(HolderFencer& fencer);
  // None is cut off here. A holder that enters meanwhile would pass for one that did not, so what is pending
  // is forgotten, durably. Throws Unavailable or OutcomeUnknown.
  void forget_pending();
  // What is called instead of the store's own calls; null: none is cut off.
  [[nodiscard]] PendingFencing* pending() const noexcept { return fencer_ != nullptr ? pending_ : nullptr; }

  // Steps 2 and 3. REQUIRES: pending() is not null.
  void run(const CutOff& call, Done<bool> done) noexcept;
  void stop();

 private:
  PendingFencing* const pending_;  // null: the state cannot keep it
  HolderFencer* fencer_ = nullptr;
};

}  // namespace fenceguard::proxy
