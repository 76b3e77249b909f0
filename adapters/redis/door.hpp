#pragma once

// A client of the server as the demonstration needs one. Its place is a part of the key's name.

#include <memory>
#include <string>

#include "guard/storage.hpp"
#include "guard/url.hpp"

namespace fenceguard::redis {

// Connects at once; throws Unavailable if that fails.
[[nodiscard]] std::unique_ptr<DirectDoor> open_direct(const Url& url, const std::string& place);

}  // namespace fenceguard::redis
