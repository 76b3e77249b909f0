#pragma once

// Endpoints: which member is asked first. One that could not be reached, or did not answer, is put aside for
// a while, so that a member that is paused does not cost every call its time-out. No socket, no clock.
//
// Thread-safe.

#include <chrono>
#include <mutex>
#include <vector>

#include "guard/support/clock.hpp"

namespace fenceguard::etcd {

class Endpoints {
 public:
  using Time = BootClock::time_point;
  static constexpr std::chrono::seconds aside_for{10};

  // REQUIRES: count is at least 1.
  explicit Endpoints(std::size_t count) : aside_until_(count) {}

  // All of them: first the present one and those after it, then those that are put aside, the one that was
  // put aside first before the others.
  [[nodiscard]] std::vector<std::size_t> order(Time now) const;

  // It answered, and so becomes the present one if that is put aside.
  void answered(std::size_t endpoint, Time now);
  void failed(std::size_t endpoint, Time now);

 private:
  mutable std::mutex mutex_;
  std::size_t present_ = 0;
  std::vector<Time> aside_until_;
};

}  // namespace fenceguard::etcd
