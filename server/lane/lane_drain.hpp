#pragma once

// LaneDrain: what waits in the lanes although it equals its fence, and when it enters. It knows the writes
// that are in flight, and lets an operation enter once all those with a lower token are over and no fencing
// is pending. The LaneAdmission hands it what was decided.
//
// Every change of a lane touches it; the LaneTable takes the touched lanes, before its call returns, and lets
// dispatch() see what may enter in each.
//
// Not thread-safe.

#include <vector>

#include "server/lane/lane.hpp"
#include "server/lane/quarantine.hpp"

namespace fenceguard::proxy {

class LaneDrain {
 public:
  LaneDrain(LaneBook& book, KnownFences& fences, Quarantine& quarantine, std::size_t waiting_per_resource_max)
      : book_{book},
        fences_{fences},
        quarantine_{quarantine},
        waiting_per_resource_max_{waiting_per_resource_max} {}

  // Counts the admission among those that wait, until it enters or is retired.
  void add_waiting(Admission& admission);
  // It enters, waits, or fails. REQUIRES: all its claims equal their fences.
  void enqueue(Admission& admission, Step step);
  // It enters once the writes that entered before are over. REQUIRES: the fence is closed.
  void enqueue_revoke(Admission& admission, Step step);
  // A write under claim is in flight; it is over, or its lane is closed for it.
  void begin_write(Lane& lane, const Claim& claim);
  void end_write(Lane& lane, const Claim& claim);
  // Lets what may enter, in the order in which it came.
  void dispatch(Lane& lane, Step step);

  // The fence has changed: every waiting operation is judged again.
  void judge_waiting(Lane& lane, Step step);
  // All that wait, but for revokes, wait no longer and are to be decided on again; oldest first.
  [[nodiscard]] std::vector<Admission*> take_waiting();
  void fail_waiting(Lane& lane, const Fault& fault, Step step);
  // A write's end was not seen.
  void close(Lane& lane, Step step);
  // All holders up to the token were cut off, or could not be.
  void cut_off(Lane& lane, const Resource& resource, Token old_token, bool is_done, Step step);

  // Each answers the admission and ends it. False: every claim is admitted by its fence.
  [[nodiscard]] bool refuse_if_judged(Admission& admission, Step step);
  void refuse(Admission& admission, std::size_t claim, Ruling ruling, Step step);
  void fail(Admission& admission, Fault fault, Step step);
  void retire(Admission& admission);

  void touch(Lane& lane);
  [[nodiscard]] Lane* take_touched();  // null: none

  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }

 private:
  void begin_cut_off(Lane& lane, const Resource& resource, Step step);
  [[nodiscard]] bool fail_if_kept_out(Admission& admission, const Lane& lane, Step step);
  void fail_closed(Admission& admission, const Lane& lane, Step step);
  void enter(Admission& admission, Step step);
  void release(Admission& admission);
  void end_waiting(Admission& admission);

  LaneBook& book_;
  KnownFences& fences_;
  Quarantine& quarantine_;
  const std::size_t waiting_per_resource_max_;
  std::vector<Lane*> touched_;
  std::size_t waiting_ = 0;
  std::size_t in_flight_ = 0;
};

}  // namespace fenceguard::proxy
