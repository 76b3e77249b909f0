#pragma once

// A claim for a program that cannot be changed: what libpq and other drivers of PostgreSQL hand to the server
// as they connect. Each session that starts with it has the claim in the setting fenceguard.session_claims,
// and writes protected tables under it. A pooler before the server refuses it, or drops it.

#include <string>

#include "guard/claim.hpp"
#include "server/cli/terminal/settings.hpp"

namespace fenceguard::cli {

// '-c fenceguard.session_claims=[…]', for PGOPTIONS or the connection parameter 'options'.
[[nodiscard]] std::string pgoptions(const Claim& claim);

// The same behind what PGOPTIONS holds in this process, as 'PGOPTIONS=…'. Of two claims the server takes the
// last one.
[[nodiscard]] std::string pgoptions_variable(const Claim& claim);

inline constexpr Setting pgoptions_setting{
    .name = "pgoptions",
    .placeholder = "on|off",
    .fallback = "on",
    .help =
        "where --storage is a PostgreSQL database: whether PGOPTIONS has the claim, for a command that knows "
        "nothing of it; off for one that admits its claim itself, such as behind a pooler"};

// Whether PGOPTIONS is to hand the claim over: --storage is a PostgreSQL database, and --pgoptions is on.
// Throws InvalidInput where --pgoptions is neither.
[[nodiscard]] bool hands_over_by_pgoptions(const Settings& settings);

// Throws InvalidInput where a pooler stands before --storage: the command's sessions could not connect, or
// would have no claim. A server that cannot be reached now passes. REQUIRES: hands_over_by_pgoptions().
void refuse_pooler(const Settings& settings);

}  // namespace fenceguard::cli
