#pragma once

// open_source(): a token source by its URL, whichever product it is of: the one place of the library that
// knows them all. Thread-safe.

#include <memory>
#include <string_view>

#include "guard/source/url.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

// open_source("sqlite:/srv/app/leases.db"). A file is created where there is none; a path that is not
// absolute is looked up from the working directory. Throws InvalidInput or Unavailable, with a sentence that
// says what to do.
[[nodiscard]] std::unique_ptr<TokenSource> open_source(std::string_view url);
[[nodiscard]] std::unique_ptr<TokenSource> open_source_at(const Url& url);

}  // namespace fenceguard
