#pragma once

// Door: how a client of the campaign gets at the entries of a resource, in a form whose order the storage
// itself keeps: a list of Redis, rows of a journal, revisions of etcd, sequential nodes of ZooKeeper, objects
// of an HTTP storage that logs its writes. One for each product.
//
// Not thread-safe.

#include <memory>
#include <optional>
#include <string>

#include "guard/judge.hpp"
#include "guard/source/url.hpp"

namespace fenceguard::campaign {

struct Read {
  Ruling ruling;
  std::optional<std::string> entry{};  // the newest; nothing unless admitted, or where there is none
};

// All calls throw Unavailable and OutcomeUnknown as the library does.
class Door {
 public:
  virtual ~Door() = default;
  // Judged by the guard, in one step with what they do. A read advances.
  [[nodiscard]] virtual Ruling advance(const Claim& claim) = 0;
  [[nodiscard]] virtual Ruling write(const Claim& claim, const std::string& entry) = 0;
  [[nodiscard]] virtual Read read(const Claim& claim) = 0;
  // Asked by nobody for a token.
  [[nodiscard]] virtual std::optional<std::string> look(const Resource& resource) = 0;
  virtual void write_unguarded(const Resource& resource, const std::string& entry) = 0;
};

// Throw InvalidInput and Unavailable for a URL that cannot be opened.
[[nodiscard]] std::unique_ptr<Door> open_redis(const Url& url);
[[nodiscard]] std::unique_ptr<Door> open_postgres(const Url& url);
[[nodiscard]] std::unique_ptr<Door> open_etcd(const Url& url);
[[nodiscard]] std::unique_ptr<Door> open_zookeeper(const Url& url);
// A guard's data side: http://HOST:PORT, or unix:/path. Its write_unguarded() and look() are of the same
// address.
[[nodiscard]] std::unique_ptr<Door> open_http(const std::string& server);
// A folder with the socket .s.PGSQL.5432 of the sidecar for PostgreSQL, in front of the database campaign.
[[nodiscard]] std::unique_ptr<Door> open_postgres_sidecar(const std::string& folder);
// The file of the embedded storage, with no guard: only look() and write_unguarded().
[[nodiscard]] std::unique_ptr<Door> open_file(const Url& url);

// The door of a URL's scheme; sidecar:/path is a Unix socket of the sidecar for Redis, pgsidecar:/folder one
// of that for PostgreSQL.
[[nodiscard]] std::unique_ptr<Door> open_door(const std::string& url);

}  // namespace fenceguard::campaign
