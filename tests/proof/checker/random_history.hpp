#pragma once

// Histories of a storage that keeps the rule, drawn at random: for the checker's own tests, and to measure
// its pace. Each operation takes effect in one step at a random moment between its call and its return; one
// whose end is not seen does so later, or never.
//
// The same seed is the same history.

#include <cstdint>

#include "tests/proof/checker/history.hpp"

namespace fenceguard::proof {

struct HistoryShape {
  int operations = 200;
  int clients = 8;
  int unknown_percent = 5;
  bool has_log = true;
};

[[nodiscard]] History random_history(std::uint64_t seed, const HistoryShape& shape = {});

}  // namespace fenceguard::proof
