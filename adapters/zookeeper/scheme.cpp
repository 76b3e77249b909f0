#include "adapters/zookeeper/scheme.hpp"

#include "adapters/zookeeper/demo/demos.hpp"
#include "adapters/zookeeper/doctor.hpp"
#include "adapters/zookeeper/door.hpp"
#include "adapters/zookeeper/storage.hpp"
#include "adapters/zookeeper/token_source.hpp"

namespace fenceguard::zookeeper {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"zookeeper"};
  scheme.open_source = [](const Url& url) { return open_source(url); };
  scheme.open_storage = [](const Url& url, const StorageOptions& options) {
    return open_storage(url, options);
  };
  scheme.open_direct = [](const Url& url, const std::string& place) { return open_direct(url, place); };
  scheme.examine_source = [](const Url& url) { return examine_source(url); };
  scheme.examine_storage = [](const Url& url) { return examine_storage(url); };
  scheme.demonstrations = demonstrations();
  return scheme;
}

}  // namespace fenceguard::zookeeper
