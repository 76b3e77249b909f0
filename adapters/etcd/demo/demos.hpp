#pragma once

// What 'fenceguard demo' tells of etcd, with real members. See guard/demonstration.hpp.

#include <vector>

#include "guard/demonstration.hpp"

namespace fenceguard::etcd {

[[nodiscard]] std::vector<Demonstration> demonstrations();

}  // namespace fenceguard::etcd
