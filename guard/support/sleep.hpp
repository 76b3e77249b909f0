#pragma once

// A sleep that can be cut short.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace fenceguard {

// Sleeps for at most duration; returns early when stop is requested.
inline void sleep_for(std::chrono::nanoseconds duration, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock{mutex};
  stopped.wait_for(lock, stop, duration, [] { return false; });
}

}  // namespace fenceguard
