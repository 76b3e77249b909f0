#include "adapters/zookeeper/scheme.hpp"

#include "adapters/zookeeper/demo/demos.hpp"
#include "adapters/zookeeper/token_source.hpp"

namespace fenceguard::zookeeper {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"zookeeper"};
  scheme.open_source = [](const Url& url) { return open_source(url); };
  scheme.demonstrations = demonstrations();
  return scheme;
}

}  // namespace fenceguard::zookeeper
