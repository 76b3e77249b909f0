#include "guard/judge.hpp"

#include <algorithm>

namespace fenceguard {
namespace {

// A claim whose token equals the fence's.
Verdict judge_equal(const FenceRef& fence, const Claim& claim) noexcept {
  if (fence.closed) return Verdict::stale;
  if (fence.holder != claim.holder.id()) return Verdict::conflict;
  if (!claim.sequence || !fence.sequence || *claim.sequence > *fence.sequence) return Verdict::admitted;
  return *claim.sequence == *fence.sequence ? Verdict::duplicate : Verdict::stale;
}

}  // namespace

const char* to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::admitted:
      return "admitted";
    case Verdict::duplicate:
      return "duplicate";
    case Verdict::stale:
      return "stale";
    case Verdict::conflict:
      return "conflict";
  }
  return "stale";
}

std::optional<Verdict> parse_verdict(std::string_view word) noexcept {
  for (const auto verdict : {Verdict::admitted, Verdict::duplicate, Verdict::stale, Verdict::conflict}) {
    if (word == to_string(verdict)) return verdict;
  }
  return std::nullopt;
}

std::int64_t FenceView::highest() const noexcept {
  return record ? std::max(record->token.value(), floor) : floor;
}

Verdict judge_verdict(const std::optional<FenceRef>& record, std::int64_t floor,
                      const Claim& claim) noexcept {
  // The fence is the higher of record and floor; at the same height the record, which knows its holder,
  // stands.
  const bool record_stands = record && record->token.value() >= floor;
  if (record_stands && claim.token == record->token) return judge_equal(*record, claim);
  const std::int64_t highest = record_stands ? record->token.value() : floor;
  return claim.token.value() > highest ? Verdict::admitted : Verdict::stale;
}

Ruling judge(const FenceView& view, const Claim& claim) {
  std::optional<FenceRef> record;
  if (view.record) {
    record =
        FenceRef{view.record->token, view.record->holder.id(), view.record->sequence, view.record->closed};
  }
  const Verdict verdict = judge_verdict(record, view.floor, claim);
  if (verdict != Verdict::admitted) return {verdict, view.highest(), view.record, false};
  if (claim.token.value() > view.highest()) {
    return {verdict, claim.token.value(), Fence{claim.token, claim.holder, claim.sequence}, true,
            true,    view.record};
  }
  Fence after = *view.record;
  if (claim.sequence) after.sequence = claim.sequence;
  return {verdict, view.highest(), after, claim.sequence.has_value()};
}

Ruling judge_refused_write(const FenceView& view, const Claim& claim) {
  return judge(view, claim.without_sequence());
}

std::int64_t jump_bound(const Claim& claim, std::int64_t jump_max) noexcept {
  return claim.is_own_grant ? 0 : jump_max;
}

bool is_implausible(const Claim& claim, std::int64_t namespace_highest, std::int64_t jump_max) noexcept {
  const std::int64_t bound = jump_bound(claim, jump_max);
  if (bound == 0) return false;
  return claim.token.value() > namespace_highest && claim.token.value() - namespace_highest > bound;
}

}  // namespace fenceguard
