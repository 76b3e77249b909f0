#pragma once

// Descriptor: a file descriptor of the system's that is closed with it. Not thread-safe.

#include <unistd.h>

#include <utility>

namespace fenceguard {

class Descriptor {
 public:
  // number: what open() and the like answered; below 0: there is none.
  explicit Descriptor(int number) noexcept : number_{number} {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void close() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

}  // namespace fenceguard
