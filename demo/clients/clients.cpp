#include "demo/clients/clients.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

std::vector<ProductClients> all_clients() {
  return {
#ifdef FENCEGUARD_SQLITE
      {.schemes = {"sqlite"}, .open_raw = sqlite::open_raw_client},
#endif
#ifdef FENCEGUARD_POSTGRES
      {.schemes = {"postgres", "postgresql"}, .open_fenced = postgres::open_fenced_client},
#endif
#ifdef FENCEGUARD_MARIADB
      {.schemes = {"mariadb", "mysql"}, .open_fenced = mariadb::open_fenced_client},
#endif
#ifdef FENCEGUARD_REDIS
      {.schemes = {"redis", "rediss"}, .open_fenced = redis::open_fenced_client},
      {.schemes = {"redis-quorum"}},
#endif
#ifdef FENCEGUARD_ZOOKEEPER
      {.schemes = {"zookeeper"}, .open_fenced = zookeeper::open_fenced_client},
#endif
#ifdef FENCEGUARD_ETCD
      {.schemes = {"etcd"}, .open_fenced = etcd::open_fenced_client},
#endif
      {.schemes = {"http", "https"}, .open_raw = proxy::open_raw_client, .needs_state = true},
  };
}

}  // namespace

const ProductClients& clients_of(const Url& url) {
  static const auto table = all_clients();
  std::vector<std::string> known;
  for (const auto& clients : table) {
    if (std::ranges::find(clients.schemes, url.scheme) != clients.schemes.end()) return clients;
    known.insert(known.end(), clients.schemes.begin(), clients.schemes.end());
  }
  throw InvalidInput(
      fmt::format("unknown scheme '{}:'; known are: {}:", url.scheme, fmt::join(known, ":, ")));
}

}  // namespace fenceguard::demo
