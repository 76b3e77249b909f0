#pragma once

// What the ZooKeeper adapter offers under zookeeper:. Thread-safe.

#include "guard/scheme.hpp"

namespace fenceguard::zookeeper {

[[nodiscard]] Scheme scheme();

}  // namespace fenceguard::zookeeper
