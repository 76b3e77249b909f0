#include "adapters/etcd/scheme.hpp"

namespace fenceguard::etcd {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"etcd"};
  return scheme;
}

}  // namespace fenceguard::etcd
