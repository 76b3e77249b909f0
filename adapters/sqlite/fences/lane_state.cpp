#include "adapters/sqlite/fences/lane_state.hpp"

#include "adapters/sqlite/fences/fence_store.hpp"
#include "adapters/sqlite/fences/lane_mark.hpp"
#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {

LaneState::LastStop EmbeddedLaneState::last_stop(const std::string& upstream) {
  const auto look = [&](FenceTransaction& transaction) -> Outcome<LastStop> {
    const auto found = LaneMark::load(transaction);
    if (!found) return LastStop::none;
    if (*found == LaneMark::open) return LastStop::unclean;
    return seal_.find(upstream) == found ? LastStop::clean : LastStop::unproven;
  };
  return submit_and_wait<LastStop>(committer_, Needs::nothing, look);
}

void EmbeddedLaneState::mark_open(Done<bool> done) {
  const auto apply = [this](FenceTransaction& transaction) -> Outcome<bool> {
    // Else a backup of this very state would still have its seal.
    seal_.remove();
    LaneMark::store(transaction, LaneMark::open);
    return true;
  };
  submit<bool>(committer_, Needs::nothing, apply, std::move(done));
}

void EmbeddedLaneState::mark_closed(std::string upstream, Done<bool> done) {
  auto apply = [this, upstream = std::move(upstream)](FenceTransaction& transaction) -> Outcome<bool> {
    LaneMark::store(transaction, seal_.make(upstream));
    return true;
  };
  submit<bool>(committer_, Needs::nothing, std::move(apply), std::move(done));
}

void EmbeddedLaneState::record(Claim claim, Done<Ruling> done) {
  auto apply = [claim = std::move(claim),
                jump_max = jump_max_](FenceTransaction& transaction) -> Outcome<Ruling> {
    auto ruling = judge_in(transaction, transaction.view(claim.resource), claim, jump_max);
    if (ruling.ok() && ruling.value().changed) transaction.record(claim.resource, *ruling.value().fence);
    return ruling;
  };
  submit<Ruling>(committer_, Needs::namespace_row, std::move(apply), std::move(done));
}

}  // namespace fenceguard::sqlite
