#pragma once

// The storage zookeeper://...: an ensemble whose clients write to it themselves, each write judged by the
// guard and proved by the multi that applies it (zookeeper::Guard). So there are fences and a token source
// here, and no objects. See guard/store/storage.hpp.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::zookeeper {

// Throws InvalidInput for a bad URL, and Unavailable if no server can be reached. A namespace without its
// floor is an uninitialised storage: 'fenceguard fence init' initialises it, and nothing else does.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options);

}  // namespace fenceguard::zookeeper
