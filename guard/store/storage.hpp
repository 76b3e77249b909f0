#pragma once

// Storage: what is protected, as the sidecar and the command line see it: the store of its fences, and what
// it serves on the data side. Adapters implement it.
//
// Thread safety: all calls may be made from any thread.

#include <chrono>
#include <cstdint>
#include <memory>

#include "guard/store/fence_store.hpp"
#include "guard/store/lane_options.hpp"
#include "guard/store/object_store.hpp"
#include "guard/store/resource_depth.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

class LaneState;

class Storage {
 public:
  virtual ~Storage() = default;
  [[nodiscard]] virtual FenceStore& fences() = 0;
  // The objects that this storage keeps; null if it keeps none of its own.
  [[nodiscard]] virtual ObjectStore* objects() { return nullptr; }
  // What a lane in front of another storage may keep here; null if this one is not fit for it.
  [[nodiscard]] virtual LaneState* lane_state() { return nullptr; }
  // Where the depth is kept by which paths name resources; null if the storage is not served by paths.
  [[nodiscard]] virtual DepthRecord* depth_record() { return nullptr; }
  // The token source that comes with the storage; null if there is none.
  [[nodiscard]] virtual TokenSource* own_source() { return nullptr; }
  // True if missing state is created when the storage is opened for it (StorageOptions::initialise), or was
  // created when it was installed; false where an operator must say so, and a number drawn from the source
  // becomes the floor.
  [[nodiscard]] virtual bool initialises_itself() const noexcept { return false; }
};

// How a storage is opened.
struct StorageOptions {
  enum class Mode {
    guard,    // as its only guard: locked for as long as the process lives
    inspect,  // to look at, beside a running guard; every change is unavailable
  };
  Mode mode = Mode::guard;
  bool initialise = false;    // create missing state with own numbers; else claims are refused until it is
  std::int64_t jump_max = 0;  // see is_implausible(); 0: no bound
  std::size_t cache_entries = 100'000;
  // How long to wait for another guard that has the state locked; this one is admitted when that process is
  // dead, not when it is silent.
  std::chrono::milliseconds lock_wait{1'000};
  bool refuses_evicting = false;  // not a server that may throw fences away when its memory is full (Redis)
  LaneOptions lane{};             // for a storage that has no atomic check of its own
};

}  // namespace fenceguard
