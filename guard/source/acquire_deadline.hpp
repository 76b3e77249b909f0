#pragma once

// AcquireDeadline: how long a caller of wait_acquire() goes on asking. A server that goes away meanwhile is
// waited for as well, because 'unavailable' says that nothing happened; an outcome that is unknown is the
// caller's to judge.
//
// Thread safety: one thread.

#include <algorithm>
#include <chrono>
#include <exception>
#include <stop_token>
#include <variant>

#include "guard/error.hpp"
#include "guard/support/clock.hpp"
#include "guard/token_source.hpp"

namespace fenceguard {

class AcquireDeadline {
 public:
  using Ms = std::chrono::milliseconds;

  explicit AcquireDeadline(const AcquireOptions& options)
      : stop_{options.stop}, deadline_{BootClock::now() + std::min<Ms>(options.wait, wait_max)} {}

  [[nodiscard]] BootClock::time_point time() const noexcept { return deadline_; }
  // Its time has passed, or the caller wants no more.
  [[nodiscard]] bool is_over() const { return stop_.stop_requested() || BootClock::now() >= deadline_; }
  // Rounded up; not negative.
  [[nodiscard]] Ms left() const {
    return std::max(Ms{0}, std::chrono::ceil<Ms>(deadline_ - BootClock::now()));
  }
  // The same, where the caller would be told that the lock was not granted: throws what the last attempt
  // threw, if that was no answer and the caller still wants one.
  [[nodiscard]] bool gives_up() const {
    if (!is_over()) return false;
    if (outage_ && !stop_.stop_requested()) std::rethrow_exception(outage_);
    return true;
  }
  // When to ask again, at the latest.
  [[nodiscard]] BootClock::time_point until(Ms retry_after) const {
    return std::min(deadline_, BootClock::now() + retry_after);
  }

  // The server was there: from now on its going away is waited out.
  void reached() noexcept {
    was_reached_ = true;
    outage_ = nullptr;
  }
  [[nodiscard]] bool was_reached() const noexcept { return was_reached_; }
  // In the handler of a fault: throws it on, unless the server was there before and there is time left, or
  // the caller wants no more. Ask again after outage_retry.
  void outlast() {
    if (stop_.stop_requested()) return;
    if (!was_reached_ || is_over()) std::rethrow_exception(std::current_exception());
    outage_ = std::current_exception();
  }
  static constexpr Ms outage_retry{200};

  // What attempt() answers; 'held' for a moment while the server is away.
  template <class Attempt>
  [[nodiscard]] std::variant<Grant, LockBusy> ask(Attempt&& attempt) {
    try {
      auto answer = attempt();
      reached();
      return answer;
    } catch (const Unavailable&) {
      outlast();
      return LockBusy{outage_retry};
    }
  }

 private:
  static constexpr Ms wait_max = std::chrono::hours{24 * 365 * 10};  // so that 'for ever' does not overflow

  std::stop_token stop_;
  BootClock::time_point deadline_;
  bool was_reached_ = false;
  std::exception_ptr outage_;  // since the last answer
};

}  // namespace fenceguard
