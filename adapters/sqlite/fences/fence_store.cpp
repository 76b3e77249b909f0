#include "adapters/sqlite/fences/fence_store.hpp"

#include <fmt/format.h>

#include "adapters/sqlite/fences/lane_mark.hpp"
#include "adapters/sqlite/file/submit.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr std::size_t compaction_step = 2000;

FenceView rebase_in(FenceTransaction& transaction, const FenceStore::Rebase& rebase) {
  FenceView view = transaction.view(rebase.resource);
  const std::int64_t before = view.highest();
  // Closed, because the holder of that number is not known: the next higher one opens it.
  view.record = Fence{rebase.to, Holder{}, std::nullopt, true};
  LaneMark::distrust(transaction);
  transaction.fences().log_rebase(rebase, before);
  transaction.record(rebase.resource, *view.record);
  transaction.find_highest();
  return view;
}

// Folds the next few fences below lowest_live into the floor; the last resource looked at, or nothing at the
// end.
std::optional<std::string> compact_in(FenceTransaction& transaction, Token lowest_live,
                                      const std::string& after, Compaction& sum) {
  const auto page = transaction.fences().list_below(lowest_live, after, compaction_step);
  for (const auto& [resource, fence] : page.entries) {
    // The table may be behind what this transaction has raised.
    const FenceView view = transaction.view(resource);
    if (!view.record || view.record->token >= lowest_live) continue;
    transaction.raise_floor(view.record->token.value());
    transaction.remove(resource);
    ++sum.dropped;
  }
  sum.floor = transaction.row().floor;
  if (!page.has_more) return std::nullopt;
  return page.entries.back().resource.name();
}

}  // namespace

FenceView revoke_in(FenceTransaction& transaction, const Resource& resource,
                    const std::optional<Claim>& lease) {
  FenceView view = transaction.view(resource);
  const bool lease_is_higher = lease && lease->token.value() > view.highest();
  if (!lease_is_higher && !view.record) return view;
  Fence fence = lease_is_higher ? Fence{lease->token, lease->holder, std::nullopt} : *view.record;
  fence.closed = true;
  transaction.record(resource, fence);
  view.record = fence;
  return view;
}

Outcome<Ruling> judge_in(FenceTransaction& transaction, const FenceView& view, const Claim& claim,
                         std::int64_t jump_max) {
  Ruling ruling = judge(view, claim);
  if (ruling.verdict == Verdict::admitted && ruling.changed &&
      is_implausible(claim, transaction.row().highest, jump_max)) {
    return Fault{
        FaultKind::implausible,
        fmt::format("the token is more than {} above the highest seen here, {}: if it is right, raise the "
                    "bound (--max-jump)",
                    jump_max, transaction.row().highest)};
  }
  return ruling;
}

// At the same height the fence itself tells why it refuses: closed, or overtaken. Admitted there changes
// nothing.
std::optional<Ruling> EmbeddedFences::rule_early(const Claim& claim, Early early) const {
  if (!committer_.is_ready()) return std::nullopt;
  const auto answer = cache_.ask(claim, committer_.floor());
  if (!answer) return std::nullopt;
  const bool is_at_height = answer->highest == claim.token.value();
  const bool is_admitted = answer->verdict == Verdict::admitted;
  if (is_admitted && (early == Early::refusals || !is_at_height)) return std::nullopt;
  return Ruling{answer->verdict, answer->highest, is_at_height ? cache_.find(claim.resource) : std::nullopt,
                false};
}

void EmbeddedFences::advance(Claim claim, Done<Ruling> done) {
  claim.sequence.reset();
  if (auto ruling = rule_early(claim, Early::all)) return done(std::move(*ruling));
  auto apply = [claim = std::move(claim),
                jump_max = jump_max_](FenceTransaction& transaction) -> Outcome<Ruling> {
    auto ruling = judge_in(transaction, transaction.view(claim.resource), claim, jump_max);
    if (ruling.ok() && ruling.value().changed) transaction.record(claim.resource, *ruling.value().fence);
    return ruling;
  };
  submit<Ruling>(committer_, Needs::namespace_row, std::move(apply), std::move(done));
}

void EmbeddedFences::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) {
  auto apply = [resource = std::move(resource),
                lease = std::move(lease)](FenceTransaction& transaction) -> Outcome<FenceView> {
    return revoke_in(transaction, resource, lease);
  };
  submit<FenceView>(committer_, Needs::namespace_row, std::move(apply), std::move(done));
}

void EmbeddedFences::compact(Token lowest_live, Done<Compaction> done) {
  compact_from({lowest_live, "", {}}, std::move(done));
}

// One step a transaction, so that writers are not kept waiting.
void EmbeddedFences::compact_from(CompactionStep step, Done<Compaction> done) {
  using Next = std::pair<Compaction, std::optional<std::string>>;
  auto apply = [step](FenceTransaction& transaction) -> Outcome<Next> {
    Compaction sum = step.sum;
    auto after = compact_in(transaction, step.lowest_live, step.after, sum);
    return Next{sum, std::move(after)};
  };
  auto go_on = [this, lowest_live = step.lowest_live, done = std::move(done)](Outcome<Next> outcome) {
    if (!outcome.ok()) return done(outcome.fault());
    auto& [sum, after] = outcome.value();
    if (!after) return done(sum);
    compact_from({lowest_live, *after, sum}, done);
  };
  submit<Next>(committer_, Needs::namespace_row, std::move(apply), Done<Next>{std::move(go_on)});
}

void EmbeddedFences::show(Resource resource, Done<FenceView> done) {
  readers_.ask<FenceView>(
      [resource = std::move(resource)](Snapshot& snapshot) { return snapshot.fences.view(resource); },
      std::move(done));
}

void EmbeddedFences::list(FenceListing listing, Done<FencePage> done) {
  readers_.ask<FencePage>(
      [listing = std::move(listing)](Snapshot& snapshot) { return snapshot.fences.list(listing); },
      std::move(done));
}

void EmbeddedFences::init(std::int64_t floor, Done<std::int64_t> done) {
  auto apply = [floor](FenceTransaction& transaction) -> Outcome<std::int64_t> {
    LaneMark::distrust(transaction);
    if (!transaction.is_initialised()) transaction.initialise(floor);
    transaction.raise_floor(floor);
    return transaction.row().floor;
  };
  submit<std::int64_t>(committer_, Needs::nothing, std::move(apply), std::move(done));
}

void EmbeddedFences::rebase(Rebase rebase, Done<FenceView> done) {
  auto apply = [rebase = std::move(rebase)](FenceTransaction& transaction) -> Outcome<FenceView> {
    return rebase_in(transaction, rebase);
  };
  submit<FenceView>(committer_, Needs::namespace_row, std::move(apply), std::move(done));
}

}  // namespace fenceguard::sqlite
