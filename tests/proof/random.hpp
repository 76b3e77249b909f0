#pragma once

// splitmix64 (Steele, Lea, Flood): small, fast, the same everywhere.

#include <cstdint>

namespace fenceguard::proof {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_{seed} {}
  std::uint64_t next() {
    auto z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // 0 to below.
  int operator()(int below) { return static_cast<int>(next() % static_cast<std::uint64_t>(below)); }
  bool percent(int chance) { return (*this)(100) < chance; }

 private:
  std::uint64_t state_;
};

}  // namespace fenceguard::proof
