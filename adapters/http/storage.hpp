#pragma once

// The storage behind http: and https:: lanes over a state, and the reverse proxy on the data side.
//
// Thread safety: as Storage.

#include <memory>

#include "guard/doors.hpp"
#include "guard/storage.hpp"
#include "guard/url.hpp"

namespace fenceguard::proxy {

// Throws InvalidInput for a URL or option that is not fit, Unavailable where the state cannot be used. The
// upstream itself need not be there yet.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options);

// Straight to the upstream. For http: only.
[[nodiscard]] std::unique_ptr<UnguardedDoor> open_unguarded(const Url& url);

}  // namespace fenceguard::proxy
