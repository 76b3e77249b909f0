#pragma once

// The clients of the demonstrations: one for each product, straight at its data. A raw client asks no fence,
// to show the harm; a fenced client writes under a claim, judged by the storage in the same step.
//
// Not thread-safe.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guard/judge.hpp"
#include "guard/source/url.hpp"

namespace fenceguard {
namespace demo {
struct PsqlOptions;
struct RedisCliOptions;
}  // namespace demo

class RawClient {
 public:
  virtual ~RawClient() = default;
  [[nodiscard]] virtual std::optional<std::string> read(const std::string& path) = 0;
  virtual void write(const std::string& path, const std::string& body) = 0;
  // Makes the place that is written to, before the first write; and removes the account with its place. Both
  // may be repeated.
  virtual void make_place() {}
  virtual void remove(const std::string& path) = 0;
};

struct FencedRead {
  Ruling ruling;
  std::optional<std::string> body;  // nothing unless admitted
};

// Of a storage whose clients write to it themselves.
class FencedClient : public RawClient {
 public:
  using RawClient::read;
  using RawClient::write;
  // Both judge and act in one atomic step. A read advances.
  [[nodiscard]] virtual FencedRead read(const Claim& claim, const std::string& path) = 0;
  [[nodiscard]] virtual Ruling write(const Claim& claim, const std::string& path,
                                     const std::string& body) = 0;
};

// place: a fresh name. They throw Unavailable where the storage cannot be reached or has no fences, the last
// two at the first call.
namespace sqlite {
[[nodiscard]] std::unique_ptr<RawClient> open_raw_client(const Url& url);
}
namespace proxy {
// http: only.
[[nodiscard]] std::unique_ptr<RawClient> open_raw_client(const Url& url);
}  // namespace proxy
namespace postgres {
// The place is a schema with one table of accounts.
[[nodiscard]] std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place);
// psql at the same account. sidecar: HOST:PORT of one that stands in front; empty: straight at the server.
[[nodiscard]] demo::PsqlOptions psql_options(const Url& url, const std::string& place,
                                             const std::string& path, const std::string& sidecar);
}  // namespace postgres
namespace mariadb {
// The place is a table of accounts.
[[nodiscard]] std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place);
}  // namespace mariadb
namespace redis {
// The place is a part of the key's name.
[[nodiscard]] std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place);
// redis-cli at the same account. sidecar: HOST:PORT of one that stands in front; empty: straight at Redis.
[[nodiscard]] demo::RedisCliOptions redis_cli_options(const Url& url, const std::string& place,
                                                      const std::string& path, const std::string& sidecar);
}  // namespace redis
namespace zookeeper {
// The place is a node below ROOT.
[[nodiscard]] std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place);
}  // namespace zookeeper
namespace etcd {
// The place is a prefix of keys outside the namespace.
[[nodiscard]] std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place);
}  // namespace etcd

namespace demo {

// What a product offers here, under its URL schemes. Functions that are empty are not offered.
struct ProductClients {
  std::vector<std::string> schemes;
  std::function<std::unique_ptr<RawClient>(const Url&)> open_raw{};
  // For storages without objects, whose clients write to them themselves. place: a fresh name.
  std::function<std::unique_ptr<FencedClient>(const Url&, const std::string& place)> open_fenced{};
  bool needs_state = false;  // a guard in front of it keeps its state elsewhere
};

// By url's scheme. Throws InvalidInput that lists the known ones.
[[nodiscard]] const ProductClients& clients_of(const Url& url);

}  // namespace demo
}  // namespace fenceguard
