#pragma once

// Waiting for a condition, with a limit: tests do not sleep for luck. Thread-safe where the condition is.

#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

namespace fenceguard::test {

// Far beyond what anything takes, also under a sanitizer on a busy machine.
inline constexpr std::chrono::milliseconds eventually_limit{60'000};

// True once condition holds; false at the limit.
[[nodiscard]] inline bool eventually(const std::function<bool()>& condition,
                                     std::chrono::milliseconds limit = eventually_limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  return true;
}

// Throws std::runtime_error at the limit.
inline void wait_until(const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = eventually_limit) {
  if (!eventually(condition, limit)) throw std::runtime_error{"it did not come about"};
}

}  // namespace fenceguard::test
