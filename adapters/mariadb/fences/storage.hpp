#pragma once

// The storage mariadb://…: a server whose clients write to it themselves, each in a transaction under a claim
// (mariadb::Guard, or the procedures). So there are fences and a token source here, and no objects. See
// guard/store/storage.hpp.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::mariadb {

// Throws InvalidInput for a bad URL, and Unavailable if the server cannot be reached. Fences that are not
// installed are an uninitialised storage.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options);

}  // namespace fenceguard::mariadb
