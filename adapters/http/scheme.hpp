#pragma once

// The schemes http: and https:: an upstream that knows nothing of tokens, behind lanes.

#include "guard/scheme.hpp"

namespace fenceguard::proxy {

[[nodiscard]] Scheme scheme();

}  // namespace fenceguard::proxy
