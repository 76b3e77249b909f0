#pragma once

// The token source zookeeper://: the lock recipe of ZooKeeper, with the czxid of the lock's node as the
// token. See docs/zookeeper.md.
//
//   zookeeper://…                        and see adapters/zookeeper/address.hpp
//     ?layout=kazoo|curator              whose locks ours exclude, and are excluded by; see layout.hpp
//     ?lock_path=/their/%s               the node of a resource's lock, %s being the resource, to share locks
//
// A lease lives by the session of this source: it is lost at once when that is no longer connected, whether
// it comes back or not, and it ends with the process. session_timeout, or else half as much again as the
// first time to live that is asked for, says how long the ensemble waits for a process that has stopped. No
// lease is granted or renewed for more than two thirds of the session timeout that the ensemble agreed to:
// Grant::ttl says for how long.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::zookeeper {

// Connects on the first call. Throws InvalidInput for a URL that it does not understand.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url);

}  // namespace fenceguard::zookeeper
