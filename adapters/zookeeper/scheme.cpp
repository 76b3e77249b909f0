#include "adapters/zookeeper/scheme.hpp"

#include "adapters/zookeeper/demo/demos.hpp"

namespace fenceguard::zookeeper {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"zookeeper"};
  scheme.demonstrations = demonstrations();
  return scheme;
}

}  // namespace fenceguard::zookeeper
