#pragma once

// HighestMark: ROOT/highest, by which a guard knows what is plausible without a look at every fence.
//
// A raise of a fence to more than slack above the mark lifts the mark to it in the same multi; a lower raise
// proves in it that the mark is as the client knows it. So no fence is ever more than slack above the mark,
// and the mark never above the highest token that was seen; and since it is written once in so many tokens,
// advancing clients do not contend for it. Only a token in between needs a look at every fence.
//
// A guard of an older version raises fences without it, so the mark admits on its own and refuses only beside
// a look at every fence of the last seconds, which lifts it. A namespace that has none yet gets it from such
// a look; until then no guard raises a fence. All users of a client share its looks, and these are bounded:
// see CoalescedScan. Values; thread-safe.

#include <cstdint>
#include <optional>
#include <string>

#include "adapters/zookeeper/answer.hpp"
#include "adapters/zookeeper/fences/fence_paths.hpp"

namespace fenceguard::zookeeper {

struct HighestMark {
  static constexpr std::int64_t slack = 65'536;

  std::int64_t value = 0;
  std::int32_t version = 0;

  // No fence has a higher token.
  [[nodiscard]] std::int64_t bound() const noexcept;

  [[nodiscard]] bool is_lifted_by(std::int64_t token) const noexcept { return token > bound(); }
  // What a multi that raises a fence to token holds beside it.
  [[nodiscard]] Op keep_true(const FencePaths& paths, std::int64_t token) const;
  // The mark after that multi.
  [[nodiscard]] HighestMark after(std::int64_t token) const noexcept;
};

// answer: of a get of FencePaths::highest(). Nothing if there is none yet. Throws Unavailable for what is no
// number.
[[nodiscard]] std::optional<HighestMark> mark_in(const FencePaths& paths, const Answer& answer);

}  // namespace fenceguard::zookeeper
