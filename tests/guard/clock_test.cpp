#include "guard/support/clock.hpp"

#include <gtest/gtest.h>

#include "guard/error.hpp"

namespace fenceguard {
namespace {

using namespace std::chrono_literals;

TEST(Duration, IsAWholeNumberWithItsUnit) {
  EXPECT_EQ(parse_duration("0s"), 0ms);
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("10s"), 10s);
  EXPECT_EQ(parse_duration("2m"), 2min);
  EXPECT_EQ(parse_duration("525600m"), 365 * 24h);
}

TEST(Duration, AnythingElseIsRefused) {
  for (const auto* text : {"",
                           "10",
                           "s",
                           "ms",
                           "-1s",
                           "+1s",
                           "01s",
                           "1.5s",
                           "1 s",
                           " 1s",
                           "1s ",
                           "1S",
                           "1h",
                           "1ms2",
                           "1e3ms",
                           "0x1s",
                           "10ss",
                           "9223372036854775808ms",
                           "9223372036854775807m",
                           "525601m"}) {
    EXPECT_THROW((void)parse_duration(text), InvalidInput) << text;
  }
}

TEST(BootClock, NeverGoesBack) {
  auto before = BootClock::now();
  for (int i = 0; i < 10'000; ++i) {
    const auto now = BootClock::now();
    ASSERT_GE(now, before);
    before = now;
  }
}

}  // namespace
}  // namespace fenceguard
