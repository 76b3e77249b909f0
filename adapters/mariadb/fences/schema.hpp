#pragma once

// The SQL of the fences, sql/mariadb, as it is embedded. Thread-safe.

#include <string>
#include <vector>

namespace fenceguard::mariadb {

// For the client mariadb: installs or upgrades the database fenceguard.
[[nodiscard]] std::string install_sql();
// Takes it away with all that is in it.
[[nodiscard]] std::string uninstall_sql();
// Statement by statement, what installs the fences in the database that is in use.
[[nodiscard]] std::vector<std::string> install_statements();

}  // namespace fenceguard::mariadb
