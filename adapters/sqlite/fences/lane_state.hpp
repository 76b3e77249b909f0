#pragma once

// The embedded storage as the state of a lane: the mark and the recorded sequences go through the committer,
// in one transaction with whatever else waits.
//
// Thread-safe.

#include "adapters/sqlite/file/committer.hpp"
#include "guard/store/lane_state.hpp"

namespace fenceguard::sqlite {

class EmbeddedLaneState : public LaneState {
 public:
  // REQUIRES: the committer outlives it.
  EmbeddedLaneState(Committer& committer, std::int64_t jump_max)
      : committer_{committer}, jump_max_{jump_max} {}

  [[nodiscard]] bool is_marked_open() override;
  void mark_open(bool is_open, Done<bool> done) override;
  void record(Claim claim, Done<Ruling> done) override;

 private:
  Committer& committer_;
  const std::int64_t jump_max_;
};

}  // namespace fenceguard::sqlite
