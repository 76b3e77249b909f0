#pragma once

// References of the upstream to itself, which its answers carry in Location and Content-Location, as a client
// of the guard must see them: a client that followed them as they are would bypass the guard.
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>

#include "server/proxy/upstream/request_writer.hpp"

namespace fenceguard::proxy {

// Whether a field of an answer holds such a reference.
[[nodiscard]] bool is_reference(std::string_view name) noexcept;

// A URL or path of the upstream's own as a path of the guard: without scheme, host, port and base path.
// Another origin's, a relative one, and what lies beside the base path stay as they are.
[[nodiscard]] std::string as_seen_by_client(std::string_view reference, const Origin& origin);

}  // namespace fenceguard::proxy
