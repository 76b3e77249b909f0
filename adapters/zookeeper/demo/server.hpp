#pragma once

// Server: a real ZooKeeper server of a demonstration, alone, on a free port of 127.0.0.1, with its data in
// the stage's folder. Its tick is 100 ms, so that sessions may be short. Dies with its owner.
//
// Not thread-safe.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "adapters/zookeeper/address.hpp"
#include "guard/demonstration.hpp"

namespace fenceguard::zookeeper::demos {

class Server {
 public:
  // Throws Unavailable where it cannot be started. REQUIRES: the stage outlives it.
  explicit Server(Stage& stage);

  // zookeeper://127.0.0.1:PORT and rest, with a time-out short enough for a story.
  [[nodiscard]] std::string url(const std::string& rest = "") const;
  [[nodiscard]] Address address() const;

  // A figure of its own, of those that the four-letter word 'mntr' lists. Throws Unavailable if it lists no
  // such figure.
  [[nodiscard]] std::int64_t figure(std::string_view name) const;

 private:
  void start();
  [[nodiscard]] std::string ask(std::string_view word) const;
  [[nodiscard]] bool serves() const;
  [[nodiscard]] std::string folder() const;
  [[nodiscard]] std::string last_words() const;

  Stage& stage_;
  int port_ = 0;
  std::unique_ptr<StageProcess> process_;
};

}  // namespace fenceguard::zookeeper::demos
