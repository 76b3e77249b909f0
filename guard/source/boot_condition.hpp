#pragma once

// BootCondition: a condition variable that waits by BootClock. Others wait by CLOCK_MONOTONIC, which stands
// still while the machine is suspended: what was due meanwhile is noticed as late as what was left of the
// wait. This one wakes as the machine resumes, and not in between to look at the right clock.
//
// One thread of the process sleeps until the earliest moment that is waited for, by a timer of the kernel's
// on CLOCK_BOOTTIME. It begins with the first wait that has an end, handles no signals, and allocates
// nothing; a process that forks has one of its own in the child.
//
// Thread safety: as std::condition_variable_any; waiting takes no memory.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "guard/support/clock.hpp"

namespace fenceguard {

class BootCondition {
 public:
  BootCondition() = default;
  BootCondition(const BootCondition&) = delete;
  BootCondition& operator=(const BootCondition&) = delete;

  void notify_all();

  // Waits until ready(), which is asked with lock held, and then answers true; or until stop or moment.
  template <class Ready>
  bool wait_until(std::unique_lock<std::mutex>& lock, const std::stop_token& stop,
                  BootClock::time_point moment, Ready ready) {
    if (ready()) return true;
    if (stop.stop_requested()) return false;
    Alarm alarm{*this, moment};
    const std::stop_callback on_stop{stop, [this] { notify_all(); }};
    while (!ready()) {
      if (stop.stop_requested() || BootClock::now() >= moment) return false;
      block(lock, stop, alarm);
    }
    return true;
  }
  // The same, without an end.
  template <class Ready>
  bool wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, Ready ready) {
    return wait_until(lock, stop, BootClock::time_point::max(), std::move(ready));
  }

 private:
  class Alarms;

  // While it lives the condition is notified at moment.
  class Alarm {
   public:
    Alarm(BootCondition& condition, BootClock::time_point moment);
    ~Alarm();
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;

   private:
    friend class BootCondition;
    BootCondition& condition_;
    const BootClock::time_point moment_;
    bool has_rung_ = false;     // guarded by the condition's mutex
    Alarms* alarms_ = nullptr;  // none: there is no end
    Alarm* before_ = nullptr;   // in the list of all, which Alarms guards
    Alarm* behind_ = nullptr;
  };

  // Gives lock up until a notification, a stop or the alarm, of which none is missed.
  void block(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, const Alarm& alarm);
  void ring(Alarm& alarm);

  std::mutex mutex_;  // taken behind a waiter's own and behind that of Alarms; behind it nothing is
  std::condition_variable changed_;
};

// Sleeps for at most duration of BootClock; returns early when stop is requested.
inline void sleep_for(std::chrono::nanoseconds duration, const std::stop_token& stop) {
  std::mutex mutex;
  BootCondition stopped;
  std::unique_lock lock{mutex};
  stopped.wait_until(lock, stop, BootClock::now() + duration, [] { return false; });
}

}  // namespace fenceguard
