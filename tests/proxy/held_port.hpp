#pragma once

// HeldPort: a port of 127.0.0.1 that stays with a test while its server starts and restarts there. Nobody
// else is given it, for a connection to elsewhere neither; and while no server listens, connections are
// refused.
//
// REQUIRES: the server binds with SO_REUSEADDR, as servers do.

#include "tests/process/loopback.hpp"

namespace fenceguard::test {

class HeldPort {
 public:
  HeldPort() {
    const int on = 1;
    if (setsockopt(bound_.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
      throw std::runtime_error{"a port cannot be shared with its server"};
  }

  [[nodiscard]] int number() const noexcept { return bound_.port(); }

 private:
  Loopback bound_;
};

}  // namespace fenceguard::test
