#include "adapters/sqlite/lane_state.hpp"

#include "adapters/sqlite/calls.hpp"
#include "adapters/sqlite/fence_store.hpp"
#include "adapters/sqlite/schema.hpp"
#include "guard/wait_for.hpp"

namespace fenceguard::sqlite {
namespace {

std::int64_t checksum(bool is_open) {
  return Checksum{}.add(is_open ? 1 : 0).value();
}

// A damaged mark is not believed: it may have said that something is open.
bool load_mark(Ledger& ledger) {
  Statement query{ledger.database().handle(), "SELECT is_open, checksum FROM fenceguard_lane WHERE id = 1"};
  if (!query.bind().step()) return false;
  const bool is_open = query.integer(0) != 0;
  if (query.integer(1) == checksum(is_open)) return is_open;
  throw Unavailable(
      "the lane's mark is damaged (its checksum is wrong): stop, keep a copy, restore a backup");
}

void store_mark(Ledger& ledger, bool is_open) {
  Statement store{ledger.database().handle(), "INSERT OR REPLACE INTO fenceguard_lane VALUES (1, ?1, ?2)"};
  store.bind(std::int64_t{is_open ? 1 : 0}, checksum(is_open)).run();
}

}  // namespace

bool EmbeddedLaneState::is_marked_open() {
  const auto look = [](Ledger& ledger) -> Outcome<bool> { return load_mark(ledger); };
  return wait_for<bool>(
      [&](Done<bool> done) { submit<bool>(committer_, Needs::nothing, look, std::move(done)); });
}

void EmbeddedLaneState::mark_open(bool is_open, Done<bool> done) {
  const auto apply = [is_open](Ledger& ledger) -> Outcome<bool> {
    store_mark(ledger, is_open);
    return is_open;
  };
  submit<bool>(committer_, Needs::nothing, apply, std::move(done));
}

void EmbeddedLaneState::record(Claim claim, Done<Ruling> done) {
  const auto apply = [claim = std::move(claim), jump_max = jump_max_](Ledger& ledger) -> Outcome<Ruling> {
    auto ruling = judge_in(ledger, ledger.view(claim.resource), claim, jump_max);
    if (ruling.ok() && ruling.value().changed) ledger.record(claim.resource, *ruling.value().fence);
    return ruling;
  };
  submit<Ruling>(committer_, Needs::namespace_row, apply, std::move(done));
}

}  // namespace fenceguard::sqlite
