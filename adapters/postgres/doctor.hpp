#pragma once

// What 'fenceguard doctor' looks at in a database and its server. Changes nothing. Thread-safe.

#include <vector>

#include "guard/scheme.hpp"
#include "guard/url.hpp"

namespace fenceguard::postgres {

[[nodiscard]] std::vector<Finding> examine_source(const Url& url);
[[nodiscard]] std::vector<Finding> examine_storage(const Url& url);

}  // namespace fenceguard::postgres
