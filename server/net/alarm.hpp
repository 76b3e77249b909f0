#pragma once

// Alarm: one timer for all deadlines of a loop. Deadlines move with every request and almost never come, so
// each is a number with its owner, and the timer wakes at the earliest.
//
// Thread safety: the loop's thread only.

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "server/net/net.hpp"

namespace fenceguard::net {

class Alarm {
 public:
  // Looks after what is due by now; the earliest deadline that is left, or SteadyTime::max(). Where it throws
  // it is called again soon. It may end the alarm.
  using Sweep = std::function<SteadyTime(SteadyTime now)>;

  // Deadlines that come closer together than apart_min are looked after together.
  Alarm(asio::io_context& context, std::chrono::milliseconds apart_min, Sweep sweep)
      : apart_min_{apart_min}, sweep_{std::move(sweep)}, timer_{context} {}
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // Has sweep called soon after deadline.
  void arm(SteadyTime deadline) {
    if (deadline < wakes_at_) sleep_until(deadline);
  }

 private:
  void sleep_until(SteadyTime moment) {
    // Until both are done no timer is set: where one throws, the next deadline sets it.
    wakes_at_ = SteadyTime::max();
    timer_.expires_at(moment);
    // One that has rung already is not taken back by the timer's end.
    timer_.async_wait([this, alive = std::weak_ptr<void>{alive_}](const boost::system::error_code& error) {
      if (!error && !alive.expired()) ring();
    });
    wakes_at_ = moment;
  }

  void ring() {
    const std::weak_ptr<void> alive = alive_;
    const auto now = std::chrono::steady_clock::now();
    auto earliest = now;
    try {
      earliest = sweep_(now);
    } catch (...) {
      // Out of memory, most likely: what is due is looked after a little later.
    }
    if (alive.expired()) return;
    wakes_at_ = SteadyTime::max();
    if (earliest != SteadyTime::max()) sleep_until(std::max(earliest, now + apart_min_));
  }

  const std::chrono::milliseconds apart_min_;
  const Sweep sweep_;
  SteadyTime wakes_at_ = SteadyTime::max();
  const std::shared_ptr<void> alive_ = std::make_shared<char>();
  Timer timer_;
};

}  // namespace fenceguard::net
