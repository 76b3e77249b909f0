#pragma once

// The storage sqlite:PATH: objects, their fences and a lease table in one file. See guard/store/storage.hpp.

#include <memory>
#include <string>

#include "guard/store/storage.hpp"

namespace fenceguard::sqlite {

// Opens the file as its guard (and creates it if it is not there), or to look at beside a running guard.
// Throws Unavailable with a sentence that says what to do.
[[nodiscard]] std::unique_ptr<Storage> open_storage(const std::string& path, const StorageOptions& options);

}  // namespace fenceguard::sqlite
