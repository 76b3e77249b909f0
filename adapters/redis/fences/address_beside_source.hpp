#pragma once

// The address in a redis: URL that may also hold the parameters of the token source: code that opens
// something else by the same URL ignores them. Thread-safe.

#include "adapters/redis/address.hpp"

namespace fenceguard::redis {

[[nodiscard]] inline Address address_beside_source(const Url& url) {
  return address_of(url, {"lock_key", "fair", "wait_replicas"});
}

}  // namespace fenceguard::redis
