#pragma once

// Memory: in a program that replaces operator new (allocation_test.cpp), the n-th allocation of what is
// watched fails. In any other it does nothing. For one thread.

#include <cstdint>

namespace fenceguard::proof {

class Memory {
 public:
  // Counted from 1, from now on; 0: none.
  static void fail_at(std::int64_t n) {
    until_failure_ = n;
    has_failed_ = false;
  }
  [[nodiscard]] static bool has_failed() { return has_failed_; }
  // True if this one is to fail.
  [[nodiscard]] static bool note_allocation() {
    if (!is_watched_ || until_failure_ == 0 || --until_failure_ > 0) return false;
    has_failed_ = true;
    return true;
  }

  class Watch {
   public:
    Watch() { is_watched_ = true; }
    ~Watch() { is_watched_ = false; }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
  };

 private:
  static inline thread_local bool is_watched_ = false, has_failed_ = false;
  static inline thread_local std::int64_t until_failure_ = 0;
};

}  // namespace fenceguard::proof
