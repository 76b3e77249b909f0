#pragma once

// The storage postgres://…: a database whose clients write to it themselves, each in transactions of its
// own under its claim. So there are fences and a token source here, and no objects. See
// guard/store/storage.hpp.

#include <memory>

#include "guard/source/url.hpp"
#include "guard/store/storage.hpp"

namespace fenceguard::postgres {

// Throws InvalidInput for a bad URL, and Unavailable if the server cannot be reached. A database without the
// schema fenceguard is an uninitialised storage: installing the SQL initialises it.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options);

}  // namespace fenceguard::postgres
