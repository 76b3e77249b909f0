#pragma once

// LaneState: what a lane keeps beside its fences in its state, durably: sequences of writes that took effect,
// and whether the last process may have left a write under way. The state's file is locked by its guard for
// as long as the process lives (StorageOptions::Mode::guard), so there is one lane at a time.
//
// Calls, faults and threads as in FenceStore.

#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard {

class LaneState {
 public:
  virtual ~LaneState() = default;

  // Whether the mark is set: the process that had the state before ended, killed or not, with a write that
  // was unfinished or unknown. Answers uninitialised state as 'not set'. Blocks; for the start. Throws
  // Unavailable.
  [[nodiscard]] virtual bool is_marked_open() = 0;

  // Sets or takes away the mark, durably before done is called. Set it before the first write is forwarded;
  // take it away when every write is over and known, at the end only.
  virtual void mark_open(bool is_open, Done<bool> done) = 0;

  // The claim's write took effect: its sequence is recorded under its token. Judges first; the ruling is
  // admitted if it was recorded. REQUIRES: the claim has a sequence.
  virtual void record(Claim claim, Done<Ruling> done) = 0;
};

}  // namespace fenceguard
