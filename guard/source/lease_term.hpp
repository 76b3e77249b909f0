#pragma once

// LeaseTerm: when a lease must be renewed and when it counts as lost, as a pure state machine: moments in,
// moments out, no clock, no thread. Lease drives it with the real clock.
//
// The lease is lost in our eyes before it is lost at the source: the term is counted from the moment before
// the request was sent, and ends a tenth of the time to live early. Where the holder needs time to stop, its
// term ends earlier by that, and is renewed more often.
//
// Not thread-safe.

#include <algorithm>
#include <chrono>

#include "guard/support/clock.hpp"

namespace fenceguard {

class LeaseTerm {
 public:
  using Time = BootClock::time_point;
  using Duration = std::chrono::milliseconds;

  // A lease of ttl that was asked for at asked_at, the moment before the request was sent.
  // REQUIRES: time_to_stop is at most half of ttl.
  LeaseTerm(Duration ttl, Time asked_at, Duration time_to_stop = Duration{0});

  // When the next renewal is due: a third of the time to live after the last request that succeeded, less
  // half of the time to stop, and so never less than a twelfth; and a twelfth after one that failed.
  [[nodiscard]] Time renew_at() const { return renew_at_; }

  // When the lease counts as lost unless a renewal succeeds before.
  [[nodiscard]] Time lost_at() const { return lost_at_; }

  [[nodiscard]] bool is_lost(Time now) const { return ended_ || now >= lost_at_; }

  // A renewal that was sent at sent_at succeeded. Too late does not count: a lost lease stays lost.
  void renewed(Time sent_at, Time now);
  // A renewal failed at now without an answer from the source; it is tried again.
  void renewal_failed(Time now);
  // The next renewal is due at once.
  void renew_now(Time now) { renew_at_ = std::min(renew_at_, now); }
  // The source said that the lease is gone.
  void ended() { ended_ = true; }

 private:
  void count_from(Time sent_at);

  Duration ttl_;
  Duration time_to_stop_;
  Time renew_at_;
  Time lost_at_;
  bool ended_ = false;
};

}  // namespace fenceguard
