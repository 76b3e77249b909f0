#pragma once

// The storage redis://…: a server whose clients write to it themselves, each write judged and applied by one
// script (redis::Guard). So there are fences and a token source here, and no objects. See
// guard/store/storage.hpp.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::redis {

// Throws InvalidInput for a bad URL, and Unavailable if the server cannot be reached. A namespace without its
// record is an uninitialised storage: 'fenceguard fence init' initialises it, and nothing else does.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options);

}  // namespace fenceguard::redis
