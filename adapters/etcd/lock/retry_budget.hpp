#pragma once

// RetryBudget: how often, and how long, what others keep changing in between is tried again. A value; not
// thread-safe.

#include <chrono>

namespace fenceguard::etcd {

class RetryBudget {
 public:
  // time: after it nothing is begun again. What is under way has its own limit.
  explicit RetryBudget(std::chrono::milliseconds time) : deadline_{std::chrono::steady_clock::now() + time} {}

  // False where it is time to give up. The first few are free: what is remembered wrongly costs one or two,
  // however slow the cluster is.
  [[nodiscard]] bool has_another() {
    return ++attempts_ <= free_attempts || std::chrono::steady_clock::now() < deadline_;
  }

 private:
  static constexpr int free_attempts = 3;
  const std::chrono::steady_clock::time_point deadline_;
  int attempts_ = 0;
};

}  // namespace fenceguard::etcd
