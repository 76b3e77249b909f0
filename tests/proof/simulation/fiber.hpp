#pragma once

// Fiber: a function with a stack of its own that can stop in the middle and go on later. Runner, Lease and
// TokenSource block; in the simulation each client blocks as a fiber, of which exactly one runs, chosen by
// the seed. Threads would do the same a hundred times slower.
//
// Exceptions may be thrown and caught in a fiber, also across its stops. A thread that a fiber starts runs
// when it is joined, and until it ends. Not thread-safe.

#include <functional>
#include <memory>

namespace fenceguard::proof {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  // REQUIRES: is_over().
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it stops or ends. REQUIRES: called outside of every fiber, and it is not over.
  void resume();
  // Stops the fiber that runs.
  static void stop();
  // The one that runs; null outside.
  [[nodiscard]] static Fiber* current() noexcept;
  [[nodiscard]] bool is_over() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fenceguard::proof
