#pragma once

// Time for renewal and waiting. No verdict ever asks a clock (guarantee G5).

#include <chrono>
#include <string>

namespace fenceguard {

// CLOCK_BOOTTIME: monotonic, and unlike std::chrono::steady_clock it goes on while the machine is suspended,
// as the time to live of a lease does at its source.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  [[nodiscard]] static time_point now() noexcept;
};

// Reads '500ms', '10s', '2m'. Throws InvalidInput with what was expected.
[[nodiscard]] std::chrono::milliseconds parse_duration(const std::string& text);

}  // namespace fenceguard
