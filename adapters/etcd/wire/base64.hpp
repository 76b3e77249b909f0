#pragma once

// Base64 (RFC 4648, with padding), as the JSON gateway of etcd wants keys and values. Thread-safe.

#include <optional>
#include <string>
#include <string_view>

namespace fenceguard::etcd {

[[nodiscard]] std::string to_base64(std::string_view bytes);

// Nothing if the text is none.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace fenceguard::etcd
