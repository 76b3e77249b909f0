#include "adapters/redis/scheme.hpp"

#include "adapters/redis/door.hpp"
#include "adapters/redis/storage.hpp"
#include "adapters/redis/token_source.hpp"

namespace fenceguard::redis {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"redis"};
  scheme.open_source = [](const Url& url) { return open_source(url); };
  scheme.open_storage = [](const Url& url, const StorageOptions& options) {
    return open_storage(url, options);
  };
  scheme.open_direct = [](const Url& url, const std::string& place) { return open_direct(url, place); };
  return scheme;
}

}  // namespace fenceguard::redis
