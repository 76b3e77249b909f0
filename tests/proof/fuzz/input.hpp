#pragma once

// Input: takes the bytes of a fuzz target apart; past its end it gives zeros. And how a target says that what
// it watches does not hold. Not thread-safe.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace fenceguard::test {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_{data}, size_{size} {}

  [[nodiscard]] bool empty() const noexcept { return at_ == size_; }
  std::uint8_t byte() { return empty() ? 0 : data_[at_++]; }
  std::size_t below(std::size_t end) { return byte() % end; }
  bool chance() { return byte() % 2 == 1; }
  template <class Choices>
  const auto& pick(const Choices& choices) {
    return choices[below(std::size(choices))];
  }
  // A byte with its length, then itself.
  std::string text() { return bytes(byte()); }
  std::string rest() { return bytes(size_ - at_); }

 private:
  std::string bytes(std::size_t wanted) {
    const auto size = std::min(wanted, size_ - at_);
    std::string found{reinterpret_cast<const char*>(data_) + at_, size};
    at_ += size;
    return found;
  }

  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

[[noreturn]] inline void violated(std::string_view what, std::string_view about = {}) {
  std::printf("violated: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
              static_cast<int>(about.size()), about.data());
  std::fflush(stdout);
  std::abort();
}

inline void require(bool holds, std::string_view what, std::string_view about = {}) {
  if (!holds) violated(what, about);
}

}  // namespace fenceguard::test
