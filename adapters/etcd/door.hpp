#pragma once

// A client of the cluster as the demonstration needs one. Its place is a prefix of keys outside the
// namespace.

#include <memory>
#include <string>

#include "guard/storage.hpp"
#include "guard/url.hpp"

namespace fenceguard::etcd {

[[nodiscard]] std::unique_ptr<DirectDoor> open_direct(const Url& url, const std::string& place);

}  // namespace fenceguard::etcd
