#pragma once

// Server: a real redis-server for tests, in a temporary folder, on a free port, gone with its owner (and with
// the test program, whatever ends it). Cluster: three of them as a Redis Cluster.
//
// Not thread-safe, but address() and the like may be read by any thread.

#include <memory>
#include <string>
#include <vector>

#include "adapters/redis/wire/connection.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/process/server_process.hpp"

namespace fenceguard::test {

class RedisServer {
 public:
  // options: further words of its command line ("--appendonly", "yes"). Without data on disk unless they say
  // so. Throws std::runtime_error where it does not start; its log is in the message.
  explicit RedisServer(std::vector<std::string> options = {});

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_.path(); }
  [[nodiscard]] std::string socket() const { return folder_.file("socket"); }  // its Unix socket

  // redis://127.0.0.1:PORT and rest: "/0?fair=1".
  [[nodiscard]] std::string url(const std::string& rest = "") const;

  // On the same port and in the same folder; start() waits until it answers.
  void start();
  void stop() { process_.stop(); }      // SIGTERM: saves where it is configured to
  void kill() { process_.kill(); }      // SIGKILL
  void pause() { process_.pause(); }    // SIGSTOP
  void resume() { process_.resume(); }  // SIGCONT

  // One command on a connection of its own; an error reply is a Reply too. Throws as Connection does.
  redis::Reply call(std::vector<std::string> words, const std::string& credentials = "");

 private:
  [[nodiscard]] bool answers() const;

  TempDir folder_{TempDir::Place::memory};
  int port_ = 0;
  ServerProcess process_;
};

class RedisCluster {
 public:
  explicit RedisCluster(int masters = 3);

  // redis://127.0.0.1:P1,127.0.0.1:P2,… and rest.
  [[nodiscard]] std::string url(const std::string& rest = "") const;
  [[nodiscard]] RedisServer& node(std::size_t index) { return *nodes_.at(index); }
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }

 private:
  std::vector<std::unique_ptr<RedisServer>> nodes_;
};

}  // namespace fenceguard::test
