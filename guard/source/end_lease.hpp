#pragma once

// end_lease(): what a revoke does to the lease of the claim that it cut off. As thread-safe as the source.

#include "guard/token_source.hpp"

namespace fenceguard {

// Ends the lease of claim, wherever it is held. One that lives by a connection of another process cannot be
// released from here, and is ended if it is the present one. A client that is granted the lock between that
// look and the end loses the lease, and nothing else: its token stays good. Throws as the source does.
inline Release end_lease(TokenSource& source, const Claim& claim) {
  if (source.release(claim) == Release::released) return Release::released;
  if (!source.lives_by_connection()) return Release::not_held;
  const auto present = source.show(claim.resource);
  if (!present || present->claim.token != claim.token) return Release::not_held;
  return source.end(claim.resource);
}

}  // namespace fenceguard
