#pragma once

// The stories themselves, one function each: tells it, and says what was observed. They throw Unavailable
// where a member could not be started or asked.

#include "guard/demonstration.hpp"

namespace fenceguard::etcd::demos {

// The members with the locks are restored from a snapshot.
[[nodiscard]] TaleEnd restore(Stage& stage, bool guarded);

}  // namespace fenceguard::etcd::demos
