#pragma once

// The schema fenceguard in a database: its SQL, as it stands in sql/postgres, and what version is installed.
//
// Thread safety: that of the connection.

#include <pqxx/pqxx>
#include <string>

namespace fenceguard::postgres {

// The version that this build's SQL installs.
inline constexpr int schema_version = 2;

// The version found in the database; 0 if the schema is not there. Throws pqxx exceptions.
[[nodiscard]] int installed_version(pqxx::transaction_base& tx);

// Throws Unavailable, and says what to do, unless the installed version can be used by this build.
void require_installed(pqxx::transaction_base& tx);

// All the SQL in one transaction: 'fenceguard sql postgres'. Can be run again, and upgrades.
[[nodiscard]] std::string install_sql();

}  // namespace fenceguard::postgres
