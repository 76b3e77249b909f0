#include "guard/support/clock.hpp"

#include <time.h>

#include <limits>

#include "guard/error.hpp"
#include "guard/token.hpp"

namespace fenceguard {

BootClock::time_point BootClock::now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return time_point{std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec}};
}

std::chrono::milliseconds parse_duration(const std::string& text) {
  // It is not quoted: what stands in the wrong place may be a URL with a password.
  static constexpr auto expected = "a duration is a whole number with a unit: 500ms, 10s or 2m";
  const auto unit_start = text.find_first_not_of("0123456789");
  if (unit_start == std::string::npos) throw InvalidInput(expected);
  const auto number = parse_decimal(text.substr(0, unit_start));
  const auto unit = text.substr(unit_start);
  std::int64_t unit_ms = 0;
  if (unit == "ms") unit_ms = 1;
  if (unit == "s") unit_ms = 1000;
  if (unit == "m") unit_ms = 60'000;
  if (!number || unit_ms == 0) throw InvalidInput(expected);
  static constexpr std::int64_t year_ms = 365LL * 24 * 3600 * 1000;
  if (*number > year_ms / unit_ms) throw InvalidInput("a duration is at most one year");
  return std::chrono::milliseconds{*number * unit_ms};
}

}  // namespace fenceguard
