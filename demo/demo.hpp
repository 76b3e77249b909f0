#pragma once

// 'fenceguard demo': shows a stale client that is let through, and one that is refused, with real processes.

#include <string>
#include <vector>

namespace fenceguard {

struct DemoOptions {
  std::string scenario = "gc-pause";
  std::string storage;         // URL; empty: a fresh one in a temporary folder
  std::string source;          // URL; empty: the storage's own
  std::string via = "direct";  // or sidecar
  std::string timeline_file;   // empty: none
  bool json = false;
};

// The scenarios that there are, a line for each: its name and what it is about.
[[nodiscard]] std::string demo_list();

// Runs the scenario and returns an exit status: 0 if both outcomes were as expected, 1 if not, 2 for wrong
// usage, 3 for a fault, 128+N after signal N. Whatever it is, no process and no temporary file is left
// behind. REQUIRES: no other thread runs.
int demo_main(const DemoOptions& options);

// Entry of a process of a scenario: 'client', or the scenario's name and what Scenario::act is told. Returns
// an exit status.
int demo_actor_main(const std::vector<std::string>& words);

}  // namespace fenceguard
