#pragma once

// The stories themselves, and what their processes do.

#include <string>
#include <vector>

#include "guard/demonstration.hpp"

namespace fenceguard::proxy::demos {

// A write of the old holder's is held in the network until a new holder is at work. Throws Unavailable where
// it cannot be told to its end.
[[nodiscard]] TaleEnd delayed_packet(Stage& stage, bool guarded);

// words: 'storage' is run_plain_storage(); 'network HOST:PORT' is run_network(). Throws InvalidInput for
// others.
void act_delayed_packet(const std::vector<std::string>& words);

}  // namespace fenceguard::proxy::demos
