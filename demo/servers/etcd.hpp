#pragma once

// EtcdServer: a real etcd of a demonstration, the only member of its cluster.
//
// Not thread-safe.

#include "demo/servers/local_server.hpp"

namespace fenceguard::demo {

class EtcdServer : public LocalServer {
 public:
  // Throws Unavailable where it cannot be started.
  explicit EtcdServer(Harness& harness);

  [[nodiscard]] std::string url() const { return "etcd://" + host(); }
  // At which the whole of its state is.
  [[nodiscard]] std::int64_t revision() const;

  // With etcdctl, as the manual of etcd says. Throw Unavailable where that fails.
  void save_snapshot();
  // SIGKILL, and its disk is lost; then from the snapshot, on the same port. REQUIRES: there is one.
  void restore_snapshot();

 private:
  [[nodiscard]] Command command() override;
  [[nodiscard]] bool serves() override;
  [[nodiscard]] bool is_reason(const std::string& /*line*/) const override { return true; }
  void run_etcdctl(std::vector<std::string> arguments, const std::string& result);
};

}  // namespace fenceguard::demo
