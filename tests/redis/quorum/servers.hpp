#pragma once

// QuorumServers: independent Redis servers that keep their counters, for tests of the quorum. As RedisServer.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/redis/server.hpp"

namespace fenceguard::test {

class QuorumServers {
 public:
  explicit QuorumServers(int size) {
    for (int i = 0; i < size; ++i) {
      servers_.push_back(std::make_unique<RedisServer>(
          std::vector<std::string>{"--appendonly", "yes", "--appendfsync", "always"}));
    }
  }

  [[nodiscard]] RedisServer& operator[](std::size_t index) { return *servers_.at(index); }
  [[nodiscard]] std::size_t size() const noexcept { return servers_.size(); }

  // redis-quorum://127.0.0.1:P1,127.0.0.1:P2,... and rest.
  [[nodiscard]] std::string url(const std::string& rest = "") const {
    std::string hosts;
    for (const auto& one : servers_)
      hosts += fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",", one->port());
    return "redis-quorum://" + hosts + rest;
  }

 private:
  std::vector<std::unique_ptr<RedisServer>> servers_;
};

}  // namespace fenceguard::test
