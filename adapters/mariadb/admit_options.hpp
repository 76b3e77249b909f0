#pragma once

// AdmitOptions: how an advance treats transactions of older claims, and what it takes for absurd. A value.

#include <chrono>
#include <cstdint>

namespace fenceguard::mariadb {

struct AdmitOptions {
  std::chrono::seconds drain{5};  // an advance waits so long for older transactions
  bool cut = true;                // then ends their sessions: see Guard::advance()
  std::int64_t jump_max = 0;      // see is_implausible(); 0: no bound
};

}  // namespace fenceguard::mariadb
