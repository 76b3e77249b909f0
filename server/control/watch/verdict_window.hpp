#pragma once

// VerdictWindow: how often each verdict was given in the last 15 minutes. It looks at the counters that there
// are anyway, once a minute, and keeps those samples: whoever gives a verdict has nothing to do with it.
//
// Thread safety: all calls may be made from any thread.

#include <deque>
#include <mutex>

#include "guard/support/clock.hpp"
#include "server/control/metrics.hpp"

namespace fenceguard {

class VerdictWindow {
 public:
  static constexpr std::chrono::minutes length{15};
  static constexpr std::chrono::minutes apart{1};

  // The counters were 0 at began.
  explicit VerdictWindow(BootClock::time_point began) : samples_{{began, {}}} {}

  // Keeps the counters as they are now, unless the last sample is younger than a minute. REQUIRES: called
  // about once a second, or a minute has more than 60 seconds.
  void sample(const Metrics::VerdictCounts& counts, BootClock::time_point now);

  struct Window {
    Metrics::VerdictCounts counts{};
    std::chrono::milliseconds length{};  // 15 to 16 minutes; less where the guard is younger
  };
  [[nodiscard]] Window look(const Metrics::VerdictCounts& counts, BootClock::time_point now) const;

 private:
  struct Sample {
    BootClock::time_point at;
    Metrics::VerdictCounts counts;
  };
  mutable std::mutex mutex_;
  std::deque<Sample> samples_;  // the first is the last of those that are 15 minutes old, if any is
};

}  // namespace fenceguard
