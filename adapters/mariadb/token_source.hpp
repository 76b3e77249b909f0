#pragma once

// The token source mariadb://… or mysql://…: leases by the server's clock, each with a number from one
// counter of the server. The SQL must be installed: 'fenceguard sql mariadb | mariadb'. See docs/mariadb.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::mariadb {

// Throws InvalidInput for a URL that it does not understand. The server is asked by the first call.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url);

}  // namespace fenceguard::mariadb
