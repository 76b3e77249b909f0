#pragma once

// The token source postgres://: leases in a service's own database, with tokens from one sequence of it. The
// SQL must be installed: 'fenceguard sql postgres | psql'. See docs/postgres/source.md.
//
//   postgres://…                 a row with an expiry by the server's clock (default, or ?lock=ttl)
//   postgres://…?lock=row        a row that an open transaction keeps locked
//   postgres://…?lock=advisory   an advisory lock of a session
//
// The last two live by a connection of this process: the lease is gone when the process is.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::postgres {

// Throws InvalidInput for a URL that it does not understand, or a kind of lock that a pooler before the
// server makes impossible; Unavailable, with a sentence that says what to do, where the server cannot be
// reached or has no fences.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(const Url& url);

}  // namespace fenceguard::postgres
