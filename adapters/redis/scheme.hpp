#pragma once

// What the Redis adapter offers under redis:// and redis-quorum://, for adapters/schemes.cpp.

#include "guard/scheme.hpp"

namespace fenceguard::redis {

[[nodiscard]] Scheme scheme();

// rediss://: known, and refused with what to do instead.
[[nodiscard]] Scheme tls_scheme();
[[nodiscard]] Scheme quorum_scheme();

}  // namespace fenceguard::redis
