#include "guard/source/boot_condition.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>
#include <vector>

namespace fenceguard {
namespace {

using namespace std::chrono_literals;

// A thread that waits until moment, and what ended its wait.
struct Waiter {
  explicit Waiter(BootClock::time_point moment)
      : is_ready_at_end{std::async(std::launch::async, [this, moment] {
          std::unique_lock lock{mutex};
          return condition.wait_until(lock, stop.get_token(), moment, [this] { return is_ready; });
        })} {}

  std::mutex mutex;
  BootCondition condition;
  bool is_ready = false;
  std::stop_source stop;
  std::future<bool> is_ready_at_end;
};

TEST(BootCondition, WaitsUntilItsMomentAndNotLess) {
  const auto moment = BootClock::now() + 50ms;
  Waiter waiter{moment};
  EXPECT_FALSE(waiter.is_ready_at_end.get());
  EXPECT_GE(BootClock::now(), moment);
}

TEST(BootCondition, EndsWhenItIsReadyAndNotAtAnyNotification) {
  Waiter waiter{BootClock::time_point::max()};
  waiter.condition.notify_all();
  EXPECT_EQ(waiter.is_ready_at_end.wait_for(20ms), std::future_status::timeout);
  {
    const std::scoped_lock lock{waiter.mutex};
    waiter.is_ready = true;
  }
  waiter.condition.notify_all();
  EXPECT_TRUE(waiter.is_ready_at_end.get());
}

TEST(BootCondition, EndsWhenItIsStopped) {
  Waiter waiter{BootClock::now() + 1h};
  waiter.stop.request_stop();
  EXPECT_FALSE(waiter.is_ready_at_end.get());
}

// No end is missed, whatever moments others wait for, and whichever comes first: the moment, the stop, or the
// notification.
TEST(BootCondition, MissesNoEndAmongMany) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 200; ++round) {
        const auto soon = std::chrono::microseconds{(i * 37 + round * 101) % 1500};
        Waiter waiter{BootClock::now() + soon};
        if (round % 3 == 0) waiter.stop.request_stop();
        if (round % 3 == 1) {
          const std::scoped_lock lock{waiter.mutex};
          waiter.is_ready = true;
          waiter.condition.notify_all();
        }
        ASSERT_EQ(waiter.is_ready_at_end.wait_for(60s), std::future_status::ready);
      }
    });
  }
}

TEST(BootCondition, WaitsInAChildOfAProcessThatWaited) {
  sleep_for(1ms, {});
  const pid_t child = ::fork();
  if (child == 0) {
    sleep_for(1ms, {});
    ::_exit(0);
  }
  int status = -1;
  const auto deadline = BootClock::now() + 60s;
  while (::waitpid(child, &status, WNOHANG) == 0 && BootClock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  if (status != 0) ::kill(child, SIGKILL);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace fenceguard
