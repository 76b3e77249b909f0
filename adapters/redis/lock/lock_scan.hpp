#pragma once

// The lowest token that is held, or still to be drawn, in a namespace with one counter. Thread safety: that
// of the client.

#include "adapters/redis/client.hpp"
#include "adapters/redis/lock/lock_key.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {

// The counter is read first, then the registered patterns, then the locks of these and of our own keys are
// scanned: a lock that is held all the while is found, because its pattern was registered in the step that
// granted it, and one that was granted later has a token above the counter. own is scanned in any case: its
// locks may be of a version that registered none. Throws Unavailable,
// OutcomeUnknown. REQUIRES: not under Redis Cluster.
[[nodiscard]] Token lowest_live_token(Client& client, const LockKey& own);

}  // namespace fenceguard::redis
