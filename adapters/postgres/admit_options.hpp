#pragma once

// AdmitOptions: how an admission treats transactions of older claims. A value.

#include <chrono>
#include <cstdint>
#include <optional>

namespace fenceguard::postgres {

// How an advance treats older transactions that are still open, and what it takes for absurd.
struct AdmitOptions {
  std::optional<std::chrono::milliseconds> drain{};  // waits so long for them; left out: the database's, 5 s
  std::optional<bool> cut{};  // then ends their backends; left out: the database's, yes
  std::int64_t jump_max = 0;  // see is_implausible(); 0: no bound
};

}  // namespace fenceguard::postgres
