#pragma once

// The storage behind http: and https:: lanes over a state, and the reverse proxy on the data side.
//
// Thread safety: as Storage.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::proxy {

// Throws InvalidInput for a URL or option that is not fit, Unavailable where the state cannot be used. The
// upstream itself need not be there yet.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options);

}  // namespace fenceguard::proxy
