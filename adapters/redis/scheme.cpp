#include "adapters/redis/scheme.hpp"

#include "adapters/redis/demo/demos.hpp"
#include "adapters/redis/doctor.hpp"
#include "adapters/redis/door.hpp"
#include "adapters/redis/quorum/source.hpp"
#include "adapters/redis/storage.hpp"
#include "adapters/redis/token_source.hpp"
#include "guard/error.hpp"

namespace fenceguard::redis {
namespace {

[[noreturn]] void refuse_tls() {
  throw InvalidInput(
      "rediss: is Redis over TLS, which the client library (hiredis 0.14) cannot speak; use redis: through a "
      "tunnel, such as stunnel or ssh -L");
}

}  // namespace

Scheme scheme() {
  Scheme scheme;
  scheme.names = {"redis"};
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

Scheme tls_scheme() {
  Scheme scheme;
  scheme.names = {"rediss"};
  scheme.open_source = [](const Url&) -> std::unique_ptr<TokenSource> { refuse_tls(); };
  scheme.open_storage = [](const Url&, const StorageOptions&) -> std::unique_ptr<Storage> { refuse_tls(); };
  scheme.open_direct = [](const Url&, const std::string&) -> std::unique_ptr<DirectDoor> { refuse_tls(); };
  scheme.examine_source = [](const Url&) -> std::vector<Finding> { refuse_tls(); };
  scheme.examine_storage = [](const Url&) -> std::vector<Finding> { refuse_tls(); };
  return scheme;
}

Scheme quorum_scheme() {
  Scheme scheme;
  scheme.names = {"redis-quorum"};
  scheme.open_source = [](const Url& url) { return open_quorum_source(url); };
  scheme.examine_source = [](const Url& url) { return examine_quorum(url); };
  return scheme;
}

}  // namespace fenceguard::redis
