#pragma once

// The stories themselves, one function each: tells it, and says what was observed. They throw Unavailable
// where a server could not be started or asked.

#include <string>
#include <vector>

#include "guard/demonstration.hpp"

namespace fenceguard::zookeeper::demos {

// A client is stopped for longer than its session lives.
[[nodiscard]] TaleEnd session_expiry(Stage& stage, bool guarded);
// What that client does, in a process of its own.
void act_session_expiry(const std::vector<std::string>& words);

// Two hundred clients wait for one node, or each for the node before its own.
[[nodiscard]] TaleEnd herd(Stage& stage, bool guarded);

}  // namespace fenceguard::zookeeper::demos
