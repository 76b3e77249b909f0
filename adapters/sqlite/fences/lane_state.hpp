#pragma once

// The embedded storage as the state of a lane: the mark, the recorded sequences and the pending fencing go
// through the committer, in one transaction with whatever else waits.
//
// Thread-safe.

#include <string>

#include "adapters/sqlite/fences/closing_seal.hpp"
#include "adapters/sqlite/file/committer.hpp"
#include "guard/store/lane_state.hpp"
#include "guard/store/pending_fencing.hpp"

namespace fenceguard::sqlite {

class EmbeddedLaneState : public LaneState, public PendingFencing {
 public:
  // REQUIRES: the committer outlives it.
  EmbeddedLaneState(Committer& committer, const std::string& path, std::int64_t jump_max)
      : committer_{committer}, seal_{path}, jump_max_{jump_max} {}

  [[nodiscard]] LastStop last_stop(const std::string& upstream) override;
  void mark_open(Done<bool> done) override;
  void mark_closed(std::string upstream, Done<bool> done) override;
  void record(Claim claim, Done<Ruling> done) override;

  // PendingFencing: pending_fencing.cpp.
  void raise(Claim claim, Done<RaiseResult> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<CloseResult> done) override;
  void finish(Claim claim, Done<CloseResult> done) override;
  void pending(Resource resource, Done<std::int64_t> done) override;
  void settle(Resource resource, Token token, Done<bool> done) override;
  void waive(Done<bool> done) override;

 private:
  Committer& committer_;
  const ClosingSeal seal_;
  const std::int64_t jump_max_;
};

}  // namespace fenceguard::sqlite
