#pragma once

// Simulation: one seeded history of clients that take locks from a quorum by the real rules (Attempt, Raise,
// Draw), at modelled nodes, through a network that loses, doubles, delays and reorders, with locks that end
// at any moment and nodes that crash and come back with or without their state.
//
// It looks for what must never be: a number granted twice for a resource, and a grant, of any resource of the
// namespace, that began after another was made, or a number was drawn, or a raise was done, and is not
// higher.
//
// The same seed is the same history. Not thread-safe.

#include <cstdint>
#include <string>

#include "tests/redis/quorum/model.hpp"

namespace fenceguard::test {

struct History {
  std::string violation;  // what must never be, in a sentence; empty: nothing
  std::string trace;      // a line per event, if asked for
  int grants = 0;
  int tenures_again = 0;  // grants of a token that its holder has
  int raises = 0;
  int restored = 0;  // raises after which a node votes again
  int draws = 0;
};

[[nodiscard]] History simulate(std::uint64_t seed, Flaws flaws, bool is_traced = false);

}  // namespace fenceguard::test
