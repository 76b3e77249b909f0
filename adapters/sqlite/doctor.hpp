#pragma once

// What 'fenceguard doctor' looks at in a file. Changes nothing. Thread-safe.

#include <string>
#include <vector>

#include "guard/scheme.hpp"

namespace fenceguard::sqlite {

[[nodiscard]] std::vector<Finding> examine_source(const std::string& path);
[[nodiscard]] std::vector<Finding> examine_storage(const std::string& path);

}  // namespace fenceguard::sqlite
