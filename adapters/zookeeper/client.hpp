#pragma once

// Client: the session that guards and fences share. It is opened by the first call that needs it and, once it
// has expired, by the next one anew.
//
//   zookeeper::Client client{"zookeeper://h1,h2,h3/app"};
//   zookeeper::Guard guard{client};
//
// Thread-safe; calls of many threads go side by side over the one connection.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "adapters/zookeeper/fence_paths.hpp"
#include "adapters/zookeeper/session.hpp"

namespace fenceguard::zookeeper {

class Client {
 public:
  // Connects to nothing yet. Throws InvalidInput for a bad URL.
  explicit Client(std::string_view url);
  explicit Client(Address address);

  // A session, connected a moment ago. tenure is another number after every loss of the connection: what was
  // seen under one tenure may have been undone in the next, by a restored backup.
  struct Connection {
    std::shared_ptr<Session> session;
    std::uint64_t tenure = 0;
  };
  // Waits for a connection. Throws Unavailable if none comes about within the address's timeout.
  [[nodiscard]] Connection connection();

  [[nodiscard]] const Address& address() const noexcept { return address_; }
  [[nodiscard]] const FencePaths& paths() const noexcept { return paths_; }

 private:
  [[nodiscard]] std::shared_ptr<Session> living_session();

  const Address address_;
  const FencePaths paths_;
  // Shared with the session's listener, which may be called as long as the session lives.
  const std::shared_ptr<std::atomic<std::uint64_t>> tenure_;
  std::mutex mutex_;  // guards the following
  std::shared_ptr<Session> session_;
};

// The address in a zookeeper: URL that may also hold the parameters of the token source: whoever opens
// something else by the same URL lets them pass. Thread-safe.
[[nodiscard]] Address address_beside_source(const Url& url);

}  // namespace fenceguard::zookeeper
