#pragma once

// The lowest token that is held, or still to be drawn, in a namespace with one counter. Thread safety: that
// of the client.

#include "adapters/redis/client.hpp"
#include "adapters/redis/lock_key.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {

// The counter is read first, then the locks are scanned: a lock that is held all the while is found, and one
// that was granted later has a token above the counter. Besides the locks of lock_key it looks at those of
// the namespace's own keys. Throws Unavailable, OutcomeUnknown. REQUIRES: not under Redis Cluster.
[[nodiscard]] Token lowest_live_token(Client& client, const LockKey& lock_key);

}  // namespace fenceguard::redis
