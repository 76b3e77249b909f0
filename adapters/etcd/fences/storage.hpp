#pragma once

// The storage etcd://…: a cluster whose clients write to it themselves, each write judged and applied by one
// transaction (etcd::Guard). So there are fences and a token source here, and no objects. See
// guard/store/storage.hpp.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::etcd {

// Throws InvalidInput for a bad URL, and Unavailable if the cluster cannot be reached. A namespace without a
// floor is an uninitialised storage: 'fenceguard fence init' initialises it, and nothing else does.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options);

}  // namespace fenceguard::etcd
