#pragma once

// The address in an etcd: URL that may also hold the parameters of the token source: code that opens
// something else by the same URL ignores them. Thread-safe.

#include "adapters/etcd/address.hpp"

namespace fenceguard::etcd {

[[nodiscard]] inline Address address_beside_source(const Url& url) {
  return address_of(url, {"lock_key"});
}

}  // namespace fenceguard::etcd
