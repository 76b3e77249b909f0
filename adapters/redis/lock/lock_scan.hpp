#pragma once

// What is found by a scan of the locks of a namespace with one counter: the lowest token that is held, or
// still to be drawn; and the resources that are locked. Thread safety: that of the client.

#include <cstdint>
#include <vector>

#include "adapters/redis/client.hpp"
#include "adapters/redis/lock/lock_key.hpp"
#include "guard/store/fence_store.hpp"
#include "guard/token.hpp"

namespace fenceguard::redis {

// The counter is read first, then the registered patterns, then the locks of these and of our own keys are
// scanned: a lock that is held all the while is found, because its pattern was registered in the step that
// granted it, and one that was granted later has a token above the counter. own is scanned in any case: its
// locks may be of a version that registered none. Throws Unavailable,
// OutcomeUnknown. REQUIRES: not under Redis Cluster.
[[nodiscard]] Token lowest_live_token(Client& client, const LockKey& own);

// The resources of own's locks that the listing names, sorted, without regard to its limit. A scan looks at
// every key of the database: one with more than scan_keys_max is Unavailable. REQUIRES: as above.
[[nodiscard]] std::vector<Resource> locked_resources(Client& client, const LockKey& own,
                                                     const FenceListing& listing);
inline constexpr std::int64_t scan_keys_max = 200'000;

}  // namespace fenceguard::redis
