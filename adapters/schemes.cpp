#include "adapters/schemes.hpp"

#ifdef FENCEGUARD_ETCD
#include "adapters/etcd/scheme.hpp"
#endif
#ifdef FENCEGUARD_HTTP
#include "adapters/http/scheme.hpp"
#endif
#ifdef FENCEGUARD_POSTGRES
#include "adapters/postgres/scheme.hpp"
#endif
#ifdef FENCEGUARD_REDIS
#include "adapters/redis/scheme.hpp"
#endif
#ifdef FENCEGUARD_SQLITE
#include "adapters/sqlite/scheme.hpp"
#endif
#ifdef FENCEGUARD_ZOOKEEPER
#include "adapters/zookeeper/scheme.hpp"
#endif

namespace fenceguard {

const SchemeTable& schemes() {
  static const SchemeTable table{{
#ifdef FENCEGUARD_SQLITE
      sqlite::scheme(),
#endif
#ifdef FENCEGUARD_POSTGRES
      postgres::scheme(),
#endif
#ifdef FENCEGUARD_REDIS
      redis::scheme(),
      redis::tls_scheme(),
      redis::quorum_scheme(),
#endif
#ifdef FENCEGUARD_ZOOKEEPER
      zookeeper::scheme(),
#endif
#ifdef FENCEGUARD_ETCD
      etcd::scheme(),
#endif
#ifdef FENCEGUARD_HTTP
      proxy::scheme(),
#endif
  }};
  return table;
}

std::unique_ptr<TokenSource> open_source(std::string_view url) {
  return schemes().open_source(Url::parse(url));
}

}  // namespace fenceguard
