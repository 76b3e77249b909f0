#pragma once

// A call that a busy machine, or a change of leaders, may leave without an answer for a while.

#include <chrono>

#include "guard/error.hpp"

namespace fenceguard::test {

// Calls function() until it has an answer, for about limit at most; throws its last Error then. What is
// unknown may be sent again by its caller only: a claim with a sequence, an advance, or what changes nothing.
auto until_answered(const auto& function, std::chrono::seconds limit = std::chrono::seconds{60}) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    try {
      return function();
    } catch (const Error&) {
      if (std::chrono::steady_clock::now() > deadline) throw;
    }
  }
}

}  // namespace fenceguard::test
