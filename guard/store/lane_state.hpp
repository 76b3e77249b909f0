#pragma once

// LaneState: what a lane keeps beside its fences in its state, durably: sequences of writes that took effect,
// and whether the last process may have left a write under way. The state's file is locked by its guard for
// as long as the process lives (StorageOptions::Mode::guard), so there is one lane at a time.
//
// Calls, faults and threads as in FenceStore.

#include <string>

#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard {

class LaneState {
 public:
  // How the process ended that had the state before.
  enum class LastStop {
    none,     // nothing was ever forwarded under this state
    clean,    // with every write over and known, and what lies here is the very state that it closed
    unclean,  // killed or not, with a write that was unfinished or unknown
    unproven  // the state may be older than the world: restored, copied, moved, or set by hand since
  };

  virtual ~LaneState() = default;

  // upstream: what is written to from now on; a state that was closed in front of another one is unproven. A
  // state that is not initialised is asked like any other. Blocks; for the start. Throws Unavailable.
  [[nodiscard]] virtual LastStop last_stop(const std::string& upstream) = 0;

  // From now on the last stop is unclean, durably before done is called. For before the first write is
  // forwarded.
  virtual void mark_open(Done<bool> done) = 0;
  // The last stop was clean, in front of this upstream. For the end, when every write is over and known.
  virtual void mark_closed(std::string upstream, Done<bool> done) = 0;

  // The claim's write took effect: its sequence is recorded under its token. Judges first; the ruling is
  // admitted if it was recorded. REQUIRES: the claim has a sequence.
  virtual void record(Claim claim, Done<Ruling> done) = 0;
};

}  // namespace fenceguard
