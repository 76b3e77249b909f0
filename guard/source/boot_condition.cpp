#include "guard/source/boot_condition.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

namespace fenceguard {

// All alarms of the process. It is never destroyed: its thread may run until the process ends.
class BootCondition::Alarms {
 public:
  static Alarms& of_this_process() {
    const std::scoped_lock lock{creation_};
    if (present_ == nullptr) {
      static const int is_noted = ::pthread_atfork([] { creation_.lock(); }, [] { creation_.unlock(); },
                                                   [] {
                                                     // Its thread is the parent's.
                                                     present_ = nullptr;
                                                     creation_.unlock();
                                                   });
      static_cast<void>(is_noted);
      present_ = new Alarms;
    }
    return *present_;
  }

  void add(Alarm& alarm) {
    const std::scoped_lock lock{mutex_};
    alarm.behind_ = first_;
    if (first_ != nullptr) first_->before_ = &alarm;
    first_ = &alarm;
    if (alarm.moment_ < wakes_at_) sleep_until(alarm.moment_);
  }

  // Not rung any more once this returns.
  void remove(Alarm& alarm) {
    const std::scoped_lock lock{mutex_};
    (alarm.before_ != nullptr ? alarm.before_->behind_ : first_) = alarm.behind_;
    if (alarm.behind_ != nullptr) alarm.behind_->before_ = alarm.before_;
  }

 private:
  Alarms() : clock_{::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)} {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread{[this] { run(); }}.detach();
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      ::close(clock_);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void run() {
    // Where the process had no descriptor left for a timer.
    static constexpr int look_again_ms = 20;
    for (;;) {
      pollfd ready{clock_, POLLIN, 0};
      ::poll(&ready, 1, clock_ < 0 ? look_again_ms : -1);
      std::uint64_t times = 0;
      static_cast<void>(!::read(clock_, &times, sizeof times));
      const std::scoped_lock lock{mutex_};
      const auto now = BootClock::now();
      auto next = BootClock::time_point::max();
      for (auto* alarm = first_; alarm != nullptr; alarm = alarm->behind_) {
        if (alarm->moment_ > now) {
          next = std::min(next, alarm->moment_);
        } else {
          alarm->condition_.ring(*alarm);
        }
      }
      sleep_until(next);
    }
  }

  // REQUIRES: mutex_ is held.
  void sleep_until(BootClock::time_point moment) {
    wakes_at_ = moment;
    itimerspec at{};  // never
    if (moment != BootClock::time_point::max()) {
      const auto since_boot = std::max(moment.time_since_epoch(), BootClock::duration{1});
      const auto seconds = std::chrono::floor<std::chrono::seconds>(since_boot);
      at.it_value = {seconds.count(), (since_boot - seconds).count()};
    }
    ::timerfd_settime(clock_, TFD_TIMER_ABSTIME, &at, nullptr);
  }

  static inline std::mutex creation_;
  static inline Alarms* present_ = nullptr;

  const int clock_;
  std::mutex mutex_;  // guards the rest, and the alarms' places in the list
  Alarm* first_ = nullptr;
  BootClock::time_point wakes_at_ = BootClock::time_point::max();
};

BootCondition::Alarm::Alarm(BootCondition& condition, BootClock::time_point moment)
    : condition_{condition}, moment_{moment} {
  if (moment_ == BootClock::time_point::max() || moment_ <= BootClock::now()) return;
  alarms_ = &Alarms::of_this_process();
  alarms_->add(*this);
}

BootCondition::Alarm::~Alarm() {
  if (alarms_ != nullptr) alarms_->remove(*this);
}

void BootCondition::notify_all() {
  const std::scoped_lock lock{mutex_};
  changed_.notify_all();
}

void BootCondition::block(std::unique_lock<std::mutex>& lock, const std::stop_token& stop,
                          const Alarm& alarm) {
  std::unique_lock own{mutex_};
  if (stop.stop_requested() || alarm.has_rung_) return;
  lock.unlock();
  changed_.wait(own);
  own.unlock();
  lock.lock();
}

void BootCondition::ring(Alarm& alarm) {
  const std::scoped_lock lock{mutex_};
  alarm.has_rung_ = true;
  changed_.notify_all();
}

}  // namespace fenceguard
