#pragma once

// PendingCalls: counts calls into a store that have not been answered, so that nothing they refer to is
// destroyed before. A store outlives the sidecar and may answer at any time.
//
// Thread safety: all calls may be made from any thread.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "guard/error.hpp"

namespace fenceguard {

class PendingCalls {
 public:
  class Ticket {
   public:
    Ticket(const Ticket& other) : count_{other.count_} { add(); }
    Ticket(Ticket&& other) noexcept : count_{std::exchange(other.count_, nullptr)} {}
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket() {
      if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_release);
    }

   private:
    friend PendingCalls;
    explicit Ticket(std::atomic<std::int64_t>& count) : count_{&count} { add(); }
    void add() {
      if (count_ != nullptr) count_->fetch_add(1, std::memory_order_relaxed);
    }
    std::atomic<std::int64_t>* count_;
  };

  // Counts for as long as it, or a copy of it, lives.
  [[nodiscard]] Ticket ticket() { return Ticket{count_}; }

  // What to pass to the store: calls body. Counts until the store has destroyed it, called or not.
  template <class T, class Body>
  [[nodiscard]] Done<T> track(Body body) {
    return Tracked<T, Body>{ticket(), std::move(body)};
  }

  // Blocks until no call is pending. REQUIRES: no new ones begin.
  void wait() const {
    // Polled on purpose: the last ticket must not touch this object after its decrement.
    while (count_.load(std::memory_order_acquire) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }

 private:
  template <class T, class Body>
  struct Tracked {
    Ticket ticket;  // first, so that it is destroyed last
    Body body;
    void operator()(Outcome<T> outcome) { body(std::move(outcome)); }
  };

  std::atomic<std::int64_t> count_{0};
};

}  // namespace fenceguard
