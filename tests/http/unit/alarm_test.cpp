#include "server/net/alarm.hpp"

#include <gtest/gtest.h>

#include <new>
#include <optional>

namespace fenceguard::net {
namespace {

using std::chrono::milliseconds;

SteadyTime ago(int ms) {
  return std::chrono::steady_clock::now() - milliseconds{ms};
}

// Both timers have run out when the loop looks: the alarm's end comes between that and its ring.
TEST(Alarm, OneThatIsGoneDoesNotRing) {
  asio::io_context context;
  int rings = 0;
  std::optional<Alarm> alarm;
  alarm.emplace(context, milliseconds{1}, [&](SteadyTime) {
    ++rings;
    return SteadyTime::max();
  });
  Timer earlier{context, ago(20)};
  earlier.async_wait([&](const boost::system::error_code&) { alarm.reset(); });
  alarm->arm(ago(10));
  context.run();
  EXPECT_FALSE(alarm);
  EXPECT_EQ(rings, 0);
}

TEST(Alarm, WhatIsLookedAfterMayEndIt) {
  asio::io_context context;
  int rings = 0;
  std::optional<Alarm> alarm;
  alarm.emplace(context, milliseconds{1}, [&](SteadyTime now) {
    ++rings;
    alarm.reset();
    return now;
  });
  alarm->arm(ago(10));
  context.run();
  EXPECT_EQ(rings, 1);
}

TEST(Alarm, RingsAgainWhereTheSweepThrew) {
  asio::io_context context;
  int rings = 0;
  Alarm alarm{context, milliseconds{1}, [&](SteadyTime) {
                if (++rings < 3) throw std::bad_alloc{};
                return SteadyTime::max();
              }};
  alarm.arm(ago(10));
  EXPECT_NO_THROW(context.run());
  EXPECT_EQ(rings, 3);
}

}  // namespace
}  // namespace fenceguard::net
