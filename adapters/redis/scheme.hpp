#pragma once

// What the Redis adapter offers under redis://, for adapters/schemes.cpp.

#include "guard/scheme.hpp"

namespace fenceguard::redis {

[[nodiscard]] Scheme scheme();

}  // namespace fenceguard::redis
