#pragma once

// ByteCut: a filter for Proxy that cuts one connection, once, after so many bytes of one direction, counted
// over all connections from the moment it was armed. Before it is armed and after the cut everything passes.
//
// Thread-safe.

#include <atomic>
#include <cstdint>
#include <string_view>

#include "tests/process/proxy.hpp"

namespace fenceguard::test {

class ByteCut {
 public:
  [[nodiscard]] Proxy::Filter filter() {
    return [this](std::size_t, Proxy::Direction direction, std::string_view piece) {
      return allowed(direction, piece.size());
    };
  }

  // REQUIRES: nothing is on its way.
  void arm(Proxy::Direction direction, std::int64_t bytes) {
    direction_ = direction;
    seen_ = 0;
    has_cut_ = false;
    left_ = bytes;
  }
  // No cut: counts.
  void watch(Proxy::Direction direction) { arm(direction, -1); }
  // The bytes of that direction since then.
  [[nodiscard]] std::int64_t seen() const { return seen_; }
  [[nodiscard]] bool has_cut() const { return has_cut_; }

  // The place to cut at after this one, of 'total': each of the first 500 and the last 1,000, and some 1,500
  // between them, where the server tells of its commands and is told a script.
  [[nodiscard]] static std::int64_t after(std::int64_t at, std::int64_t total) {
    return at < 500 || at + 1'000 >= total ? at + 1 : at + 1 + total / 1'500;
  }

 private:
  // Never the whole piece in which it cuts, so that something is lost.
  std::size_t allowed(Proxy::Direction direction, std::size_t size) {
    if (direction != direction_) return size;
    const auto count = static_cast<std::int64_t>(size);
    seen_ += count;
    if (left_ < 0) return size;
    if (count < left_) {
      left_ -= count;
      return size;
    }
    const auto rest = static_cast<std::size_t>(left_.exchange(-1));
    has_cut_ = true;
    return rest < size ? rest : size - 1;
  }

  std::atomic<Proxy::Direction> direction_{Proxy::Direction::to_server};
  std::atomic<std::int64_t> left_{-1}, seen_{0};
  std::atomic<bool> has_cut_{false};
};

}  // namespace fenceguard::test
