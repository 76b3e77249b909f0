#pragma once

// What the etcd adapter offers under etcd:. Thread-safe.

#include "guard/scheme.hpp"

namespace fenceguard::etcd {

[[nodiscard]] Scheme scheme();

}  // namespace fenceguard::etcd
