#pragma once

// Story: lets one run of the demonstration happen, with a server and two clients that are processes of their
// own, and records what happened.

#include <string>

#include "guard/cli/demo_process.hpp"
#include "guard/cli/demo_run.hpp"

namespace fenceguard::demo {

// Where the story takes place.
struct GcPauseStage {
  std::string storage;      // URL
  std::string source;       // URL; empty: the storage's own
  std::string state;        // URL, where the storage does not keep the fences itself; else empty
  std::string resource;     // the account
  std::string place;        // what is made for it in a storage whose clients write to it themselves; or empty
  std::string log_file;     // the server's stderr
  bool initialise = false;  // the fences are fresh, and take their floor from the source
  bool is_borrowed = false;  // the storage is not ours: the account is removed at the end
};

// The same story, round the guard or through it. Throws InvalidInput, Unavailable or OutcomeUnknown where it
// could not be told to its end, and Interruption.
[[nodiscard]] Run tell_gc_pause(const GcPauseStage& stage, bool guarded, Interrupts& interrupts);

}  // namespace fenceguard::demo
