#pragma once

// A client of the database as the demonstration needs one. Its place is a schema of its own with one table of
// accounts.

#include <memory>
#include <string>

#include "guard/storage.hpp"
#include "guard/url.hpp"

namespace fenceguard::postgres {

// place: the schema's name. Connects at once; throws Unavailable if that fails or the fences are not
// installed.
[[nodiscard]] std::unique_ptr<DirectDoor> open_direct(const Url& url, const std::string& place);

}  // namespace fenceguard::postgres
