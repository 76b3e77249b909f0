#include "adapters/sqlite/fences/lane_state.hpp"

#include "adapters/sqlite/fences/fence_store.hpp"
#include "adapters/sqlite/file/checked_number.hpp"
#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {
namespace {

// A damaged one may have said that something is open.
constexpr CheckedNumber mark{"fenceguard_lane", "is_open", "the lane's mark"};

}  // namespace

bool EmbeddedLaneState::is_marked_open() {
  const auto look = [](FenceTransaction& transaction) -> Outcome<bool> {
    return mark.load(transaction).value_or(0) != 0;
  };
  return submit_and_wait<bool>(committer_, Needs::nothing, look);
}

void EmbeddedLaneState::mark_open(bool is_open, Done<bool> done) {
  const auto apply = [is_open](FenceTransaction& transaction) -> Outcome<bool> {
    mark.store(transaction, is_open ? 1 : 0);
    return is_open;
  };
  submit<bool>(committer_, Needs::nothing, apply, std::move(done));
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
