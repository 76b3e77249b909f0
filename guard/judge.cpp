#include "guard/judge.hpp"

#include <algorithm>

namespace fenceguard {
namespace {

Ruling unchanged(Verdict verdict, const FenceView& view) {
  return {verdict, view.highest(), view.record, false};
}

// A claim whose token equals the fence's.
Ruling judge_equal(const FenceView& view, const Claim& claim) {
  const Fence& fence = *view.record;
  if (fence.closed) return unchanged(Verdict::stale, view);
  if (fence.holder != claim.holder) return unchanged(Verdict::conflict, view);
  if (!claim.sequence) return unchanged(Verdict::admitted, view);
  if (fence.sequence && *claim.sequence == *fence.sequence) return unchanged(Verdict::duplicate, view);
  if (fence.sequence && *claim.sequence < *fence.sequence) return unchanged(Verdict::stale, view);
  Fence after = fence;
  after.sequence = claim.sequence;
  return {Verdict::admitted, view.highest(), after, true};
}

}  // namespace

const char* to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::admitted: return "admitted";
    case Verdict::duplicate: return "duplicate";
    case Verdict::stale: return "stale";
    case Verdict::conflict: return "conflict";
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

Ruling judge(const FenceView& view, const Claim& claim) {
  // The fence is the higher of record and floor; at the same height the record, which knows its holder, stands.
  const bool record_stands = view.record && view.record->token.value() >= view.floor;
  if (record_stands && claim.token == view.record->token) return judge_equal(view, claim);
  if (claim.token.value() <= view.highest()) return unchanged(Verdict::stale, view);
  return {Verdict::admitted, claim.token.value(), Fence{claim.token, claim.holder, claim.sequence}, true};
}

Ruling judge_refused_write(const FenceView& view, const Claim& claim) {
  return judge(view, claim.without_sequence());
}

bool is_implausible(const Claim& claim, std::int64_t namespace_highest, std::int64_t jump_max) noexcept {
  if (jump_max == 0) return false;
  return claim.token.value() > namespace_highest && claim.token.value() - namespace_highest > jump_max;
}

}  // namespace fenceguard
