#pragma once

// OwedCuts: which old holders are to be cut off before a newer token goes on, durably, in the state of a
// lane. A LaneState that can keep it offers it beside its own calls.
//
// A cut is owed from the transaction that raises the fence over an open one of another holder (or revokes it)
// until settle(): a guard that dies in between finds it at its next start. It counts for all tokens up to the
// one that is owed. A holder that was not let in before the cut is never owed itself, so that one number
// a resource is enough: the lowest. A fence that is finished owes nothing: its own holder closed it by
// finish(), or it was revoked and then settled.
//
// Calls, faults and threads as in FenceStore.

#include <cstdint>
#include <optional>

#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard {

class OwedCuts {
 public:
  virtual ~OwedCuts() = default;

  struct Raised {
    Ruling ruling;
    std::int64_t owed = 0;  // afterwards; 0: nothing
  };
  // As FenceStore::advance().
  virtual void raise(Claim claim, Done<Raised> done) = 0;

  struct Closed {
    FenceView view;
    std::int64_t owed = 0;
  };
  // As FenceStore::revoke(): the holder did not ask for it, and is to be cut off.
  virtual void revoke(Resource resource, std::optional<Claim> lease, Done<Closed> done) = 0;

  // The holder of the claim gives it back, and says by that that it writes no more: closes the fence if it
  // is still this holder's. Answers the fence afterwards.
  virtual void finish(Claim claim, Done<Closed> done) = 0;

  // What is owed on the resource; 0: nothing.
  virtual void owed(Resource resource, Done<std::int64_t> done) = 0;

  // All holders up to the token were cut off.
  virtual void settle(Resource resource, Token token, Done<bool> done) = 0;

  // Nothing is owed any more: from now on holders are let in without a cut, so that what was owed says
  // nothing of them.
  virtual void waive(Done<bool> done) = 0;
};

}  // namespace fenceguard
