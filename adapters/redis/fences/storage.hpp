#pragma once

// The storage redis://…: a server whose clients write to it themselves, each write judged and applied by one
// script (redis::Guard). So there are fences and a token source here, and no objects. See
// guard/store/storage.hpp.

#include <atomic>
#include <memory>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::redis {

// Throws InvalidInput for a bad URL, and Unavailable if the server cannot be reached. A namespace without its
// record is an uninitialised storage: 'fenceguard fence init' initialises it, and nothing else does.
// may_evict, if it is not null: Unavailable too where the server's maxmemory-policy may evict fences, or may
// have; it is set as soon as a later one may, which is looked at about once a second, and the storage is
// 'failed', until init() or as long as it is not certain that nothing was evicted.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options,
                                                    std::shared_ptr<std::atomic<bool>> may_evict = nullptr);

}  // namespace fenceguard::redis
