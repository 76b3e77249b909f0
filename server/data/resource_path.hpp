#pragma once

// The path of a request as what it names. One spelling only: a path is percent-decoded once and checked
// before it is judged, so that two encodings of one path are one resource, and what is stored is what was
// judged.
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>
#include <variant>

#include "guard/resource.hpp"

namespace fenceguard {

// Why a path names nothing, as a sentence for a 400.
struct BadPath {
  std::string reason;
};

// What a path on the data side names. Both without a leading slash.
struct ResourcePath {
  Resource resource;  // what is fenced
  std::string path;   // the object
};

// Reads a request target of the data side: '/accounts/42'. resource_depth 0: all of the path is the resource;
// otherwise its first resource_depth segments are, and a shorter path is bad.
[[nodiscard]] std::variant<ResourcePath, BadPath> parse_resource_path(std::string_view target,
                                                                      std::size_t resource_depth);

// What of a decoded path without its leading slash is the resource; empty: it has fewer segments.
[[nodiscard]] std::string_view fenced_part(std::string_view path, std::size_t resource_depth) noexcept;

// Percent-decodes a path once. Bad: a malformed escape, an encoded slash or NUL.
[[nodiscard]] std::variant<std::string, BadPath> decode_path(std::string_view path);

}  // namespace fenceguard
