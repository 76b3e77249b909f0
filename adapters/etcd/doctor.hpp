#pragma once

// What 'fenceguard doctor' looks at in an etcd cluster. Changes nothing. Thread-safe.

#include <vector>

#include "guard/scheme.hpp"
#include "guard/url.hpp"

namespace fenceguard::etcd {

// Throw Unavailable where not one member can be reached. One of several that cannot is a finding.
[[nodiscard]] std::vector<Finding> examine_source(const Url& url);
[[nodiscard]] std::vector<Finding> examine_storage(const Url& url);

}  // namespace fenceguard::etcd
