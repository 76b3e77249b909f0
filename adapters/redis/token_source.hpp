#pragma once

// The token source redis://: a lock and its token granted by one script, the token from one counter of the
// namespace (under Redis Cluster from one of the resource). See docs/redis.md.
//
//   redis://HOST[:PORT][/DATABASE]   and see adapters/redis/address.hpp
//     ?lock_key=PREFIX%sSUFFIX       the lock's key, %s being the resource, to exclude and be excluded by
//                                    another library's 'SET key value NX PX'
//     ?fair=1                        first come, first served
//     ?wait_replicas=N               a grant or a renewal counts only once N replicas have it

#include <memory>

#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::redis {

// Throws InvalidInput for a URL that it does not understand; Unavailable, with a sentence that says what to
// do, where the server cannot be reached.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url);

}  // namespace fenceguard::redis
