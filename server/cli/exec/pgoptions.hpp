#pragma once

// A claim for a program that cannot be changed: what libpq and other drivers of PostgreSQL hand to the server
// as they connect. Each session that starts with it has the claim in the setting fenceguard.session_claims,
// and writes protected tables under it.

#include <string>

#include "guard/claim.hpp"
#include "server/cli/settings.hpp"

namespace fenceguard::cli {

// '-c fenceguard.session_claims=[…]', for PGOPTIONS or the connection parameter 'options'.
[[nodiscard]] std::string pgoptions(const Claim& claim);

// The same behind what PGOPTIONS holds in this process, as 'PGOPTIONS=…'. Of two claims the server takes the
// last one.
[[nodiscard]] std::string pgoptions_variable(const Claim& claim);

// Whether --storage is a PostgreSQL database. False where the command has no --storage, or it is not given.
[[nodiscard]] bool is_postgres_storage(const Settings& settings);

}  // namespace fenceguard::cli
