#pragma once

// The If field of WebDAV (RFC 4918, section 10.4): lists of conditions, each behind the URL of what it is on,
// or on the target of the request where there is none. URLs of the guard's own are named anew for the
// upstream, as Destination is: under the guard's name it knows nothing, and no condition on it would hold.
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/data/resource_path.hpp"

namespace fenceguard::proxy {

// A piece of the field's value as it came, or a path (and query) of the guard's own, encoded as a target is,
// which stands for '<URL>'.
struct IfPiece {
  bool is_own_path = false;
  std::string text;
};

// host: as the request's Host says. A URL of another's stays as it is: what is true of it is not for us to
// know.
[[nodiscard]] std::variant<std::vector<IfPiece>, BadPath> parse_if(std::string_view value,
                                                                   std::string_view host);

}  // namespace fenceguard::proxy
