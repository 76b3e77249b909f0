#pragma once

// What 'fenceguard demo' tells of ZooKeeper, with real servers. See guard/demonstration.hpp.

#include <vector>

#include "guard/demonstration.hpp"

namespace fenceguard::zookeeper {

[[nodiscard]] std::vector<Demonstration> demonstrations();

}  // namespace fenceguard::zookeeper
