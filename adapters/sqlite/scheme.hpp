#pragma once

// What the SQLite adapter offers under sqlite: URLs.

#include "guard/scheme.hpp"

namespace fenceguard::sqlite {

[[nodiscard]] Scheme scheme();

}  // namespace fenceguard::sqlite
