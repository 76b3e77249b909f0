#pragma once

// Target: what a request to the proxy names, and how it is named to the upstream. One spelling only: the path
// is decoded once, checked, judged, and encoded anew, so that the upstream is told exactly what was judged.
//
// Pure; safe to use from any thread.

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "server/data/resource_path.hpp"

namespace fenceguard::proxy {

struct Target {
  Resource resource;
  std::string path;   // encoded: everything but unreserved characters and slashes as %XX; begins with a slash
  std::string query;  // as it came, with its question mark; empty if there is none
};

// What becomes of one slash at the end of a path: it is no part of the resource's name, but WebDAV's servers
// tell a collection by it.
enum class FinalSlash { refused, kept };

// Reads a request target. resource_depth as for parse_resource_path().
[[nodiscard]] std::variant<Target, BadPath> parse_target(std::string_view target, std::size_t resource_depth,
                                                         FinalSlash slash = FinalSlash::refused);

// Reads the Destination of a MOVE or COPY (RFC 4918, section 10.3): a path, or an absolute URL of this very
// host, which is what the request's Host says.
[[nodiscard]] std::variant<Target, BadPath> parse_destination(std::string_view destination,
                                                              std::string_view host,
                                                              std::size_t resource_depth);

// Reads a reference in a condition, which may name any path, collections and '/' too: the path and query of
// it, encoded as a target's. Nothing: it is a URL of another host.
[[nodiscard]] std::optional<std::variant<std::string, BadPath>> parse_own_reference(std::string_view text,
                                                                                    std::string_view host);

}  // namespace fenceguard::proxy
