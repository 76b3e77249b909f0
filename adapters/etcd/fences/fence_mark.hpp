#pragma once

// The mark: PREFIX/highest, by which a guard knows what is plausible without a look at every fence.
//
// A raise of a fence to more than mark_slack above the mark lifts the mark to it in the same transaction; a
// lower raise compares in it that the mark is as the client knows it. So no fence is ever more than
// mark_slack above the mark, and the mark never above the highest token that was seen; and since it is put
// once in so many tokens, advancing clients do not contend for it. Only a token in between needs a look at
// every fence.
//
// A guard of an older version raises fences without it, so the mark admits on its own and refuses only beside
// a look at every fence of the last seconds, which lifts it. A namespace that has none yet gets it from such
// a look; until then no guard raises a fence. All users of a client share its looks, and these are bounded:
// see CoalescedScan. Functions throw Unavailable; thread safety is that of the client.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/fences/fence_keys.hpp"

namespace fenceguard::etcd {

inline constexpr std::int64_t mark_slack = 65'536;

// No fence has a higher token.
[[nodiscard]] constexpr std::int64_t bound_of(std::int64_t mark) noexcept {
  return mark + std::min(mark_slack, std::numeric_limits<std::int64_t>::max() - mark);
}

// Adds to a transaction that raises a fence to token what keeps the mark true. Answers the mark after it.
std::int64_t keep_mark(Txn& txn, const FenceKeys& keys, std::int64_t mark, std::int64_t token);

// Of a get of FenceKeys::highest(). Nothing if there is none yet.
[[nodiscard]] std::optional<std::int64_t> mark_in(const OpAnswer& answer);

// The mark as it is now, made if there was none.
[[nodiscard]] std::int64_t read_mark(Client& client, const FenceKeys& keys);

// Whether claim is plausible by the highest token of the namespace. highest: as far as it became known.
// Unavailable also where the mark leaves it open and fences were looked at too often lately.
struct Plausibility {
  bool is_plausible = false;
  std::int64_t highest = 0;
};
[[nodiscard]] Plausibility plausibility_of(Client& client, const FenceKeys& keys, const Claim& claim,
                                           std::int64_t jump_max);

// After a fence was lowered by hand, when the mark was this. Throws nothing: what counts as implausible stays
// generous until the next time.
void lower_mark(Client& client, const FenceKeys& keys, std::int64_t mark) noexcept;

}  // namespace fenceguard::etcd
