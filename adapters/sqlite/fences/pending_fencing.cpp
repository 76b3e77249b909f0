#include <fmt/format.h>

#include "adapters/sqlite/fences/fence_store.hpp"
#include "adapters/sqlite/fences/lane_state.hpp"
#include "adapters/sqlite/file/schema.hpp"
#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {
namespace {

std::int64_t checksum(const Resource& resource, std::int64_t token) {
  return Checksum{}.add(resource.name()).add(token).value();
}

std::int64_t load(FenceTransaction& transaction, const Resource& resource) {
  Statement query{transaction.database().handle(),
                  "SELECT token, checksum FROM fenceguard_cut WHERE resource = ?1"};
  if (!query.bind(resource.name()).step()) return 0;
  const auto token = query.integer(0);
  if (query.integer(1) == checksum(resource, token)) return token;
  throw Unavailable(fmt::format(
      "the pending fencing of '{}' is damaged (its checksum is wrong): stop, keep a copy, restore a backup",
      resource.name()));
}

void store(FenceTransaction& transaction, const Resource& resource, std::int64_t token) {
  Statement insert{transaction.database().handle(), "INSERT INTO fenceguard_cut VALUES (?1, ?2, ?3)"};
  insert.bind(resource.name(), token, checksum(resource, token)).run();
}

void remove(FenceTransaction& transaction, const Resource& resource) {
  Statement erase{transaction.database().handle(), "DELETE FROM fenceguard_cut WHERE resource = ?1"};
  erase.bind(resource.name()).run();
}

// Two that say no name cannot be told apart.
bool is_same_holder(const Holder& a, const Holder& b) {
  return a == b && !a.id().empty();
}

// What is pending once fence's holder is overtaken: the lowest, because no later one entered meanwhile.
std::int64_t mark_pending(FenceTransaction& transaction, const Resource& resource,
                          const std::optional<Fence>& fence) {
  const auto before = load(transaction, resource);
  if (before != 0 || !fence || fence->finished) return before;
  store(transaction, resource, fence->token.value());
  return fence->token.value();
}

}  // namespace

void EmbeddedLaneState::raise(Claim claim, Done<RaiseResult> done) {
  claim.sequence.reset();
  auto apply = [claim = std::move(claim),
                jump_max = jump_max_](FenceTransaction& transaction) -> Outcome<RaiseResult> {
    const FenceView before = transaction.view(claim.resource);
    auto ruling = judge_in(transaction, before, claim, jump_max);
    if (!ruling.ok()) return ruling.fault();
    const bool is_overtaken =
        ruling.value().raised && before.record && !is_same_holder(before.record->holder, claim.holder);
    const auto pending = is_overtaken ? mark_pending(transaction, claim.resource, before.record)
                                      : load(transaction, claim.resource);
    if (ruling.value().changed) transaction.record(claim.resource, *ruling.value().fence);
    return RaiseResult{std::move(ruling.value()), pending};
  };
  submit<RaiseResult>(committer_, Needs::namespace_row, std::move(apply), std::move(done));
}

void EmbeddedLaneState::revoke(Resource resource, std::optional<Claim> lease, Done<CloseResult> done) {
  auto apply = [resource = std::move(resource),
                lease = std::move(lease)](FenceTransaction& transaction) -> Outcome<CloseResult> {
    const FenceView before = transaction.view(resource);
    const auto pending = mark_pending(transaction, resource, before.record);
    return CloseResult{revoke_in(transaction, resource, lease), pending};
  };
  submit<CloseResult>(committer_, Needs::namespace_row, std::move(apply), std::move(done));
}

void EmbeddedLaneState::finish(Claim claim, Done<CloseResult> done) {
  auto apply = [claim = std::move(claim)](FenceTransaction& transaction) -> Outcome<CloseResult> {
    FenceView view = transaction.view(claim.resource);
    const bool is_own =
        view.record && view.record->token == claim.token && view.record->holder == claim.holder;
    if (is_own && !view.record->finished) {
      view.record->closed = true;
      view.record->finished = true;
      transaction.record(claim.resource, *view.record);
    }
    return CloseResult{view, load(transaction, claim.resource)};
  };
  submit<CloseResult>(committer_, Needs::namespace_row, std::move(apply), std::move(done));
}

void EmbeddedLaneState::pending(Resource resource, Done<std::int64_t> done) {
  auto apply = [resource = std::move(resource)](FenceTransaction& transaction) -> Outcome<std::int64_t> {
    return load(transaction, resource);
  };
  submit<std::int64_t>(committer_, Needs::nothing, std::move(apply), std::move(done));
}

void EmbeddedLaneState::settle(Resource resource, Token token, Done<bool> done) {
  auto apply = [resource = std::move(resource), token](FenceTransaction& transaction) -> Outcome<bool> {
    const auto pending = load(transaction, resource);
    const bool is_covered = pending != 0 && pending <= token.value();
    if (!is_covered) return false;
    remove(transaction, resource);
    // Of a revoke: nobody is left under it.
    auto record = transaction.view(resource).record;
    if (record && record->closed && !record->finished) {
      record->finished = true;
      transaction.record(resource, *record);
    }
    return true;
  };
  submit<bool>(committer_, Needs::namespace_row, std::move(apply), std::move(done));
}

void EmbeddedLaneState::waive(Done<bool> done) {
  const auto apply = [](FenceTransaction& transaction) -> Outcome<bool> {
    auto* connection = transaction.database().handle();
    Statement any{connection, "SELECT 1 FROM fenceguard_cut LIMIT 1"};
    const bool is_pending = any.bind().step();
    if (is_pending) Statement{connection, "DELETE FROM fenceguard_cut"}.bind().run();
    return is_pending;
  };
  submit<bool>(committer_, Needs::nothing, apply, std::move(done));
}

}  // namespace fenceguard::sqlite
