#pragma once

// The doctor's single checks. Each looks at one thing in a transaction of its own, and throws pqxx exceptions
// where it may not look.

#include <pqxx/pqxx>
#include <string>
#include <vector>

#include "server/doctor/doctor.hpp"

namespace fenceguard::postgres {

struct Check {
  const char* name;
  Findings (*look)(pqxx::transaction_base& tx, const std::string& name);
};

// What holds for every use of this server and database; needs no fences.
[[nodiscard]] std::vector<Check> server_checks();
// What holds for every user of the fences' functions.
[[nodiscard]] std::vector<Check> role_checks();
[[nodiscard]] std::vector<Check> fence_checks();
[[nodiscard]] std::vector<Check> source_checks();

}  // namespace fenceguard::postgres
