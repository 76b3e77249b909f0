#include "adapters/redis/scheme.hpp"

#include "adapters/redis/token_source.hpp"

namespace fenceguard::redis {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"redis"};
  scheme.open_source = [](const Url& url) { return open_source(url); };
  return scheme;
}

}  // namespace fenceguard::redis
