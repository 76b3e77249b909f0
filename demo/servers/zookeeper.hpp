#pragma once

// ZooKeeperServer: a real ZooKeeper server of a demonstration, alone. Its tick is 100 ms, so that sessions
// may be short.
//
// Not thread-safe.

#include "demo/servers/local_server.hpp"

namespace fenceguard::demo {

class ZooKeeperServer : public LocalServer {
 public:
  // Throws Unavailable where it cannot be started.
  explicit ZooKeeperServer(Harness& harness);

  // zookeeper://127.0.0.1:PORT
  [[nodiscard]] std::string url() const { return "zookeeper://" + host(); }
  // One of those that the four-letter word 'mntr' lists. Throws Unavailable if it lists no such figure.
  [[nodiscard]] std::int64_t figure(const std::string& name) const;

 private:
  [[nodiscard]] Command command() override;
  [[nodiscard]] bool serves() override;
  [[nodiscard]] bool is_reason(const std::string& line) const override;
};

}  // namespace fenceguard::demo
