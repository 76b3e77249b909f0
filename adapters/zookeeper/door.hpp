#pragma once

// A client of the ensemble as the demonstration needs one. Its place is a node below ROOT.

#include <memory>
#include <string>

#include "guard/storage.hpp"
#include "guard/url.hpp"

namespace fenceguard::zookeeper {

// Connects at the first call; each throws Unavailable if that fails.
[[nodiscard]] std::unique_ptr<DirectDoor> open_direct(const Url& url, const std::string& place);

}  // namespace fenceguard::zookeeper
