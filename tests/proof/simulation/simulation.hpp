#pragma once

// One history of the real thing, end to end: clients by the Runner, the quorum's rules or the lease queue as
// their source, the rule in a storage's own transaction or the LaneTable in front of an upstream, and
// everything that can go wrong in between. All of it follows from the seed, byte for byte.

#include <cstdint>
#include <string>

#include "tests/proof/checker/history.hpp"
#include "tests/proof/simulation/world.hpp"

namespace fenceguard::proof {

struct Simulated {
  History history;
  Counts counts;
  std::string source_violation;  // empty: none
};

[[nodiscard]] Simulated simulate(std::uint64_t seed, int operations = 200);

}  // namespace fenceguard::proof
