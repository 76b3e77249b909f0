#pragma once

// The storage behind redis: as the server sees it: that of the library, with a data side that speaks RESP2.
//
// Thread safety: as Storage.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::resp {

// As redis::open_storage.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options);

}  // namespace fenceguard::resp
