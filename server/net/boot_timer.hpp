#pragma once

// BootTimer: a timer of a loop on BootClock, for what is judged by that. Asio's stand still while the machine
// is suspended.
//
// Thread safety: the loop's thread only.

#include <sys/timerfd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>

#include "guard/error.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::net {

class BootTimer {
 public:
  // Throws Unavailable.
  explicit BootTimer(boost::asio::io_context& loop) : timer_{loop} {
    const int descriptor = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (descriptor < 0) throw Unavailable("no descriptor is left for a timer");
    timer_.assign(descriptor);
  }

  void cancel() {
    moment_ = BootClock::time_point::max();
    timer_.cancel();
  }

  // Calls act once moment has come, unless it is cancelled or set anew before.
  template <class Act>
  void set(BootClock::time_point moment, Act act) {
    const auto since_boot = std::max(moment.time_since_epoch(), BootClock::duration{1});
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_boot);
    const itimerspec at{{}, {seconds.count(), (since_boot - seconds).count()}};
    moment_ = moment;
    timer_.cancel();
    ::timerfd_settime(timer_.native_handle(), TFD_TIMER_ABSTIME, &at, nullptr);
    wait(moment, std::move(act));
  }

 private:
  template <class Act>
  void wait(BootClock::time_point moment, Act act) {
    timer_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, moment, act = std::move(act)](const boost::system::error_code& error) mutable {
                        if (error || moment != moment_) return;
                        // It rang for what it was set to before.
                        if (BootClock::now() < moment) return wait(moment, std::move(act));
                        act();
                      });
  }

  BootClock::time_point moment_ = BootClock::time_point::max();
  boost::asio::posix::stream_descriptor timer_;
};

}  // namespace fenceguard::net
