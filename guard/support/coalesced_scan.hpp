#pragma once

// CoalescedScan: a number for which every fence has to be looked at. Many callers may need it at once, and a
// hostile one as often as it can ask: so callers share a look, and what looks may cost is bounded, about a
// tenth of the time.
//
// Thread-safe.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>

namespace fenceguard {

class CoalescedScan {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Look = std::function<std::int64_t()>;

  // How old a look may be by which a token is refused that a mark, which is kept with every fence, refuses
  // too. It is there for what was raised without a mark.
  static constexpr std::chrono::seconds beside_mark{2};
  // The same while another caller is at a look, so that a hostile one does not keep every thread waiting.
  static constexpr std::chrono::seconds beside_mark_meanwhile{60};

  // now: the clock.
  explicit CoalescedScan(std::function<Time()> now = std::chrono::steady_clock::now) : now_{std::move(now)} {}

  [[nodiscard]] Time now() const { return now_(); }

  struct Found {
    Time begun;
    std::int64_t number = 0;
  };
  // What a look found that began at since or later: one that was made, one that another caller is at, or
  // look(), on this thread. Where looks have cost too much lately it is the last one, though older; and so it
  // is while another caller is at one, if it began at meanwhile or later. Throws what look() throws, also
  // where another caller was at it, and where the last one failed and looks have cost too much: an older
  // number may be long outdated then.
  [[nodiscard]] Found since(Time since, const Look& look, Time meanwhile = Time::max());

 private:
  // So much more than a tenth, in a row.
  static constexpr std::chrono::seconds debt_max{10};
  static constexpr int cost_factor = 10;

  [[nodiscard]] Found make(std::unique_lock<std::mutex>& lock, const Look& look);

  const std::function<Time()> now_;
  std::mutex mutex_;  // guards the following
  std::condition_variable ended_;
  bool is_running_ = false;
  int ends_ = 0;
  std::exception_ptr fault_;  // of the one that ended last
  std::optional<Found> last_;
  Time paid_until_{};
};

}  // namespace fenceguard
