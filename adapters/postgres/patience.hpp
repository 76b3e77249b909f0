#pragma once

// Patience: how long a caller of wait_acquire() goes on asking. A server that goes away while somebody waits
// is waited for as well, because 'unavailable' says that nothing happened; an outcome that is unknown is the
// caller's to judge.
//
// Thread safety: one thread.

#include <algorithm>
#include <variant>

#include "guard/error.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::postgres {

class Patience {
 public:
  using Ms = std::chrono::milliseconds;

  explicit Patience(const AcquireOptions& options)
      : stop_{options.stop}, deadline_{BootClock::now() + std::min<Ms>(options.wait, wait_max)} {}

  [[nodiscard]] bool is_over() const { return stop_.stop_requested() || BootClock::now() >= deadline_; }

  // Until the deadline, rounded up; not negative.
  [[nodiscard]] Ms left() const {
    return std::max(Ms{0}, std::chrono::ceil<Ms>(deadline_ - BootClock::now()));
  }

  // When to ask again, at the latest.
  [[nodiscard]] BootClock::time_point until(Ms retry_after) const {
    return std::min(deadline_, BootClock::now() + retry_after);
  }

  // The server was there: from now on its going away is waited out.
  void reached() { was_reached_ = true; }

  // What attempt() answers; 'held' for a moment if the server was there before and went away.
  template <class Attempt>
  [[nodiscard]] std::variant<Grant, Held> ask(Attempt&& attempt) {
    try {
      auto answer = attempt();
      reached();
      return answer;
    } catch (const Unavailable&) {
      if (stop_.stop_requested()) return Held{};
      if (!was_reached_ || is_over()) throw;
      return Held{away_retry};
    }
  }

 private:
  static constexpr Ms wait_max = std::chrono::hours{24 * 365 * 10};
  static constexpr Ms away_retry{500};

  std::stop_token stop_;
  BootClock::time_point deadline_;
  bool was_reached_ = false;
};

}  // namespace fenceguard::postgres
