#pragma once

// Member: a real etcd of a demonstration, the only member of its cluster, on a free port of 127.0.0.1, with
// its data in the stage's folder. Dies with its owner.
//
// Not thread-safe.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adapters/etcd/address.hpp"
#include "guard/demonstration.hpp"

namespace fenceguard::etcd::demos {

class Member {
 public:
  // name: of its folder. Throws Unavailable where it cannot be started. REQUIRES: the stage outlives it.
  Member(Stage& stage, std::string name);

  [[nodiscard]] std::string url() const;  // etcd://127.0.0.1:PORT
  [[nodiscard]] Address address() const;
  // At which the whole of its state is.
  [[nodiscard]] std::int64_t revision() const;

  // With etcdctl, as the manual of etcd says. Throw Unavailable where that fails.
  void save_snapshot();
  // SIGKILL, and its disk is lost; then from the snapshot, on the same port. REQUIRES: there is one.
  void restore_snapshot();

 private:
  void start();
  [[nodiscard]] bool answers() const;
  void run_etcdctl(std::vector<std::string> arguments, const std::string& result);
  [[nodiscard]] std::string folder() const;
  [[nodiscard]] std::string last_words() const;

  Stage& stage_;
  const std::string name_;
  int port_ = 0;
  std::unique_ptr<StageProcess> process_;
};

}  // namespace fenceguard::etcd::demos
