#pragma once

// What 'fenceguard doctor' looks at in a ZooKeeper ensemble. It opens a session and sends a multi that only
// checks, both of which the servers log; it changes no node. Thread-safe.

#include <vector>

#include "guard/scheme.hpp"
#include "guard/url.hpp"

namespace fenceguard::zookeeper {

[[nodiscard]] std::vector<Finding> examine_source(const Url& url);
[[nodiscard]] std::vector<Finding> examine_storage(const Url& url);

}  // namespace fenceguard::zookeeper
