#include "adapters/zookeeper/scheme.hpp"

namespace fenceguard::zookeeper {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"zookeeper"};
  return scheme;
}

}  // namespace fenceguard::zookeeper
