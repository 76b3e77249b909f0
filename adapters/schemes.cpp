#include "adapters/schemes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "guard/error.hpp"
#ifdef FENCEGUARD_ETCD
#include "adapters/etcd/token_source.hpp"
#endif
#ifdef FENCEGUARD_MARIADB
#include "adapters/mariadb/token_source.hpp"
#endif
#ifdef FENCEGUARD_POSTGRES
#include "adapters/postgres/token_source.hpp"
#endif
#ifdef FENCEGUARD_REDIS
#include "adapters/redis/quorum/source.hpp"
#include "adapters/redis/token_source.hpp"
#endif
#ifdef FENCEGUARD_SQLITE
#include "adapters/sqlite/token_source.hpp"
#endif
#ifdef FENCEGUARD_ZOOKEEPER
#include "adapters/zookeeper/token_source.hpp"
#endif

namespace fenceguard {
namespace {

struct Scheme {
  std::string_view name;
  std::unique_ptr<TokenSource> (*open)(const Url& url);
};

// To add a source is to add its line here, and its product's to server/products.cpp.
const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> all{
#ifdef FENCEGUARD_SQLITE
      {"sqlite", sqlite::open_source},
#endif
#ifdef FENCEGUARD_POSTGRES
      {"postgres", postgres::open_source},
      {"postgresql", postgres::open_source},
#endif
#ifdef FENCEGUARD_MARIADB
      {"mariadb", mariadb::open_source},
      {"mysql", mariadb::open_source},
#endif
#ifdef FENCEGUARD_REDIS
      {"redis", redis::open_source},
      {"rediss", redis::open_source},
      {"redis-quorum", redis::open_quorum_source},
#endif
#ifdef FENCEGUARD_ZOOKEEPER
      {"zookeeper", zookeeper::open_source},
#endif
#ifdef FENCEGUARD_ETCD
      {"etcd", etcd::open_source},
#endif
  };
  return all;
}

}  // namespace

std::unique_ptr<TokenSource> open_source_at(const Url& url) {
  const auto scheme = std::ranges::find(schemes(), url.scheme, &Scheme::name);
  if (scheme != schemes().end()) return scheme->open(url);
  std::vector<std::string_view> known;
  for (const auto& each : schemes()) known.push_back(each.name);
  throw InvalidInput(
      fmt::format("unknown scheme '{}:'; known are: {}:", url.scheme, fmt::join(known, ":, ")));
}

std::unique_ptr<TokenSource> open_source(std::string_view url) {
  return open_source_at(Url::parse(url));
}

}  // namespace fenceguard
