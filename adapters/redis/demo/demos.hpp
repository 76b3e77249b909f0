#pragma once

// What 'fenceguard demo' tells of Redis: the well known ways in which a lock in Redis lets two clients in,
// each with real servers. See guard/demonstration.hpp.

#include <vector>

#include "guard/demonstration.hpp"

namespace fenceguard::redis {

[[nodiscard]] std::vector<Demonstration> demonstrations();

}  // namespace fenceguard::redis
