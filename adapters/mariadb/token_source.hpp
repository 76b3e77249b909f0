#pragma once

// The token source mariadb://… or mysql://…: leases in a service's own server, each with a number from one
// counter of it. The SQL must be installed: 'fenceguard sql mariadb | mariadb'. See docs/mariadb.
//
//   mariadb://…              a row with an expiry by the server's clock (default, or ?lock=ttl)
//   mariadb://…?lock=named   a lock of a session (GET_LOCK): the lease is gone when the process is

#include <memory>

#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::mariadb {

// Throws InvalidInput for a URL that it does not understand. The server is asked by the first call.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url);

}  // namespace fenceguard::mariadb
