#pragma once

#include <cstdlib>
#include <string>

#include "adapters/postgres/fences/schema.hpp"

namespace fenceguard::postgres::test {

// The SQL that installs the schema: the plain one, or the extension where the tests run with that.
inline std::string installation() {
  return std::getenv("FENCEGUARD_POSTGRES_FAST") == nullptr ? install_sql() : "CREATE EXTENSION fenceguard";
}

}  // namespace fenceguard::postgres::test
