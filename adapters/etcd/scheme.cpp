#include "adapters/etcd/scheme.hpp"

#include "adapters/etcd/demo/demos.hpp"
#include "adapters/etcd/doctor.hpp"
#include "adapters/etcd/door.hpp"
#include "adapters/etcd/storage.hpp"
#include "adapters/etcd/token_source.hpp"

namespace fenceguard::etcd {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"etcd"};
  scheme.open_source = open_source;
  scheme.open_storage = open_storage;
  scheme.open_direct = open_direct;
  scheme.examine_source = examine_source;
  scheme.examine_storage = examine_storage;
  scheme.demonstrations = demonstrations();
  return scheme;
}

}  // namespace fenceguard::etcd
