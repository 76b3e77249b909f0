#pragma once

// How much a test does: less where a sanitizer makes every step several times as slow.

#include <algorithm>

namespace fenceguard::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int slowdown = 8;
#else
inline constexpr int slowdown = 1;
#endif

// rounds in a plain build, at least one in any.
[[nodiscard]] constexpr int scaled(int rounds) {
  return std::max(1, rounds / slowdown);
}

}  // namespace fenceguard::test
