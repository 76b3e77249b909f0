#pragma once

// Quarantine: which lanes are closed to every claim, and until when. A lane is closed for the settle time by
// each write whose end was not seen, and for as long as a sequence that took effect is not recorded; all are
// closed at the start after a stop that may have left a write under way.
//
// Not thread-safe.

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>

#include "server/lane/lane.hpp"

namespace fenceguard::proxy {

class Quarantine {
 public:
  explicit Quarantine(Time settle) : settle_{settle} {}

  // Why every resource is closed: a write that is not known here may be under way. Beginnings of sentences.
  static constexpr std::string_view left_open =
      "the guard before this one ended with a write unfinished or unknown";
  static constexpr std::string_view not_shown =
      "nothing shows that this state is the very one which the last guard closed in order (it is new, or was "
      "restored, copied, moved, initialised again or set by hand, or the machine was started anew), so a "
      "write may be unfinished or unknown";
  // Closes every lane until then. why: a literal.
  void close_all(Time until, std::string_view why) {
    all_closed_until_ = std::max(all_closed_until_, until);
    all_closed_because_ = why;
  }
  void close(Lane& lane, Time now);

  [[nodiscard]] bool is_closed(const Lane& lane, Time now) const noexcept {
    return lane.closure.is_closed(now) || is_all_closed(now);
  }
  [[nodiscard]] bool is_all_closed(Time now) const noexcept { return now < all_closed_until_; }
  // What a claim is told. lane: null where there is none, and everything is closed.
  [[nodiscard]] Fault fault(const Lane* lane, Time now) const;

  // When take_due() has a lane; nothing: not before another is closed.
  [[nodiscard]] std::optional<Time> due() const;
  // A lane for which one of its settle times is over; null: none, now.
  [[nodiscard]] Lane* take_due(Time now);

  // True if no lane waits for its settle time. That a sequence is unrecorded is its lane's to say.
  [[nodiscard]] bool is_over(Time now) const {
    return !is_all_closed(now) && (timers_.empty() || timers_.back().until <= now);
  }
  [[nodiscard]] std::size_t closed_lanes() const noexcept { return closed_lanes_; }
  [[nodiscard]] std::uint64_t closures() const noexcept { return closures_; }  // since the start

 private:
  struct Timer {
    Time until;
    Lane* lane;
  };

  const Time settle_;
  std::deque<Timer> timers_;  // in order, because each is set the settle time ahead
  Time all_closed_until_{};
  std::string_view all_closed_because_;
  std::size_t closed_lanes_ = 0;
  std::uint64_t closures_ = 0;
};

}  // namespace fenceguard::proxy
