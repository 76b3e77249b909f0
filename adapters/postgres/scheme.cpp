#include "adapters/postgres/scheme.hpp"

#include "adapters/postgres/doctor.hpp"
#include "adapters/postgres/door.hpp"
#include "adapters/postgres/schema.hpp"
#include "adapters/postgres/storage.hpp"
#include "adapters/postgres/token_source.hpp"

namespace fenceguard::postgres {

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"postgres", "postgresql"};
  scheme.open_source = [](const Url& url) { return open_source(url); };
  scheme.open_storage = [](const Url& url, const StorageOptions& options) {
    return open_storage(url, options);
  };
  scheme.open_direct = [](const Url& url, const std::string& place) { return open_direct(url, place); };
  scheme.examine_source = [](const Url& url) { return examine_source(url); };
  scheme.examine_storage = [](const Url& url) { return examine_storage(url); };
  scheme.install_sql = [] { return install_sql(); };
  return scheme;
}

}  // namespace fenceguard::postgres
