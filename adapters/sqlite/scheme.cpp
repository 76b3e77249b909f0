#include "adapters/sqlite/scheme.hpp"

namespace fenceguard::sqlite {

Scheme scheme() { return {}; }

}  // namespace fenceguard::sqlite
