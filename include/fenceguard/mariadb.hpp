#pragma once

// Writes to MariaDB and MySQL under a claim, and its token source: link fenceguard::mariadb. See
// docs/mariadb.

#include "adapters/mariadb/connection.hpp"
#include "adapters/mariadb/guard.hpp"
#include "adapters/mariadb/token_source.hpp"
#include "adapters/mariadb/versioned_table.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
