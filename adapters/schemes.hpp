#pragma once

// Which URL scheme belongs to which adapter: the only code that knows all adapters. Thread-safe.

#include <memory>
#include <string_view>

#include "guard/scheme.hpp"

namespace fenceguard {

// All schemes of this build.
[[nodiscard]] const SchemeTable& schemes();

// A token source by its URL: open_source("sqlite:/srv/app/leases.db"). A file is created where there is none;
// a path that is not absolute is looked up from the working directory. Throws InvalidInput or Unavailable.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(std::string_view url);

}  // namespace fenceguard
