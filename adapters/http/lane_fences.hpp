#pragma once

// LaneFences: the fences of a state with the lanes in front of them, as the control side and the command line
// see them: advance and revoke drain, what changes the store behind the lanes makes them look again.
//
// Thread-safe.

#include "adapters/http/lane_desk.hpp"
#include "guard/fence_store.hpp"
#include "guard/pending_calls.hpp"

namespace fenceguard::proxy {

class LaneFences : public FenceStore {
 public:
  // REQUIRES: both outlive it.
  LaneFences(LaneDesk& desk, FenceStore& store) : desk_{desk}, store_{store} {}
  // Waits for what the store still has to answer to it.
  ~LaneFences() override { pending_.wait(); }

  [[nodiscard]] StoreStatus status() const override { return store_.status(); }
  void advance(Claim claim, Done<Ruling> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override;
  void compact(Token lowest_live, Done<Compaction> done) override;
  void show(Resource resource, Done<FenceView> done) override;
  void list(FenceListing listing, Done<FencePage> done) override;
  void init(std::int64_t floor, Done<std::int64_t> done) override;
  // Unavailable: for a stopped guard.
  void rebase(Rebase rebase, Done<FenceView> done) override;

 private:
  LaneDesk& desk_;
  FenceStore& store_;
  PendingCalls pending_;
};

}  // namespace fenceguard::proxy
