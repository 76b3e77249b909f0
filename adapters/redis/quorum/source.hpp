#pragma once

// The token source redis-quorum://: locks at a majority of independent Redis servers, with tokens that rise
// from grant to grant. The rules are those of attempt.hpp and raise.hpp. See docs/redis.md.
//
//   redis-quorum://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],...[/DATABASE]   1 to 15 servers, best an odd
//   number
//     ?node_timeout=50ms         what a server may take to answer, at most a quarter of the time to live
//     ?unsafe_persistence=1      also servers that may forget their counters in a crash
//     ?prefix=, timeout=, connect_timeout=, db=   see adapters/redis/address.hpp; the same for all servers

#include <memory>

#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::redis {

// Throws InvalidInput for a URL that it does not understand; Unavailable, with a sentence that says what to
// do, where fewer than a majority of the servers can be reached, or one of them may forget its counters.
[[nodiscard]] std::unique_ptr<TokenSource> open_quorum_source(const Url& url);

}  // namespace fenceguard::redis
