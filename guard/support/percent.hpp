#pragma once

// Percent-encoding (RFC 3986), for URLs and for paths on the wire.

#include <optional>
#include <string>
#include <string_view>

namespace fenceguard {

// The bytes that text stands for. Nothing if a '%' is not followed by two hexadecimal digits.
[[nodiscard]] std::optional<std::string> percent_decode(std::string_view text);

// A path with everything encoded but unreserved characters and the slash.
[[nodiscard]] std::string percent_encode_path(std::string_view path);

}  // namespace fenceguard
