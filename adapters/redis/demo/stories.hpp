#pragma once

// The stories themselves, one function each: tells it, and says what was observed. They throw Unavailable
// where a server could not be started or asked.

#include "guard/demonstration.hpp"

namespace fenceguard::redis::demos {

// A client dies between SETNX and EXPIRE.
[[nodiscard]] TaleEnd expire_crash(Stage& stage, bool guarded);
// A late DEL frees a lock that belongs to somebody else.
[[nodiscard]] TaleEnd foreign_unlock(Stage& stage, bool guarded);
// A replica that lags is promoted.
[[nodiscard]] TaleEnd failover(Stage& stage, bool guarded);
// Nodes of a Redlock restart without their data.
[[nodiscard]] TaleEnd redlock_restart(Stage& stage, bool guarded);
// The server's clock jumps.
[[nodiscard]] TaleEnd clock_jump(Stage& stage, bool guarded);

}  // namespace fenceguard::redis::demos
