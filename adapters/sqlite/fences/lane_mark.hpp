#pragma once

// LaneMark: the number in a state that tells how its last lane ended.
//
// Not thread-safe: as the FenceTransaction.

#include <cstdint>
#include <optional>

#include "adapters/sqlite/file/fence_transaction.hpp"

namespace fenceguard::sqlite {

struct LaneMark {
  // A write is, or may be, under way.
  static constexpr std::int64_t open = 1;
  // What the last process closed is not what the next one finds. No seal has this digest, and programs up to
  // 0.2.0 wrote it for closed, which shows nothing.
  static constexpr std::int64_t distrusted = 0;

  // open, distrusted, or the digest of the ClosingSeal that was made when the state was closed, which those
  // programs take for open. Nothing: no lane ever forwarded a write. Throws Unavailable if it is damaged: it
  // may have said that something is open.
  [[nodiscard]] static std::optional<std::int64_t> load(FenceTransaction& transaction);
  static void store(FenceTransaction& transaction, std::int64_t number);

  // Init, and what an operator sets by hand: the state may have been restored just before.
  static void distrust(FenceTransaction& transaction);
};

}  // namespace fenceguard::sqlite
