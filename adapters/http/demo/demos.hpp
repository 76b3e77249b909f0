#pragma once

// What 'fenceguard demo' tells of a storage over HTTP that knows nothing of tokens, with real processes. See
// guard/demonstration.hpp.

#include <vector>

#include "guard/demonstration.hpp"

namespace fenceguard::proxy {

[[nodiscard]] std::vector<Demonstration> demonstrations();

}  // namespace fenceguard::proxy
