#pragma once

// PendingFencing: which old holders must be cut off before a newer token may enter, kept durably in the state
// of a lane. A LaneState that can keep it offers it beside its own calls.
//
// Fencing is pending from the transaction that raises the fence over another holder's open fence (or revokes
// it) until settle(): a guard that dies in between finds it at its next start. It covers all tokens up to the
// pending one. A holder that did not enter before the cut-off is never pending itself, so one number a
// resource is enough: the lowest. A finished fence leaves nothing pending: its own holder closed it by
// finish(), or it was revoked and then settled.
//
// Calls, faults and threads as in FenceStore.

#include <cstdint>
#include <optional>

#include "guard/error.hpp"
#include "guard/judge.hpp"

namespace fenceguard {

class PendingFencing {
 public:
  virtual ~PendingFencing() = default;

  struct RaiseResult {
    Ruling ruling;
    std::int64_t pending = 0;  // afterwards; 0: nothing
  };
  // As FenceStore::advance().
  virtual void raise(Claim claim, Done<RaiseResult> done) = 0;

  struct CloseResult {
    FenceView view;
    std::int64_t pending = 0;
  };
  // As FenceStore::revoke(): the holder did not ask for it, and is to be cut off.
  virtual void revoke(Resource resource, std::optional<Claim> lease, Done<CloseResult> done) = 0;

  // The holder of the claim gives it back, and says by that that it writes no more: closes the fence if it
  // is still this holder's. Answers the fence afterwards.
  virtual void finish(Claim claim, Done<CloseResult> done) = 0;

  // The token up to which holders are still to be cut off on the resource; 0: nothing is pending.
  virtual void pending(Resource resource, Done<std::int64_t> done) = 0;

  // All holders up to the token were cut off.
  virtual void settle(Resource resource, Token token, Done<bool> done) = 0;

  // Forgets all that is pending: from now on holders enter without a cut-off, so what was pending does not
  // cover them.
  virtual void waive(Done<bool> done) = 0;
};

}  // namespace fenceguard
