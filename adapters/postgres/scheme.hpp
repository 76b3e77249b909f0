#pragma once

// What the PostgreSQL adapter offers under postgres: and postgresql: URLs.

#include "guard/scheme.hpp"

namespace fenceguard::postgres {

[[nodiscard]] Scheme scheme();

}  // namespace fenceguard::postgres
