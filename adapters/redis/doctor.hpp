#pragma once

// What 'fenceguard doctor' looks at in a Redis server, in each master of a Redis Cluster, or in each node of
// a quorum. Changes nothing. Thread-safe.

#include <vector>

#include "guard/scheme.hpp"
#include "guard/url.hpp"

namespace fenceguard::redis {

[[nodiscard]] std::vector<Finding> examine_source(const Url& url);
[[nodiscard]] std::vector<Finding> examine_storage(const Url& url);

// redis-quorum://: each server by its name; one that cannot be reached is a danger. What its counters need to
// be safe is more than a single source needs: every write on disk before its answer.
[[nodiscard]] std::vector<Finding> examine_quorum(const Url& url);

}  // namespace fenceguard::redis
