#pragma once

// FrameCutter: what a Proxy passes on between a client and a ZooKeeper server, up to the n-th frame in one
// direction; that one it keeps, and cuts the connection. ZooKeeper's frames begin with their length, in four
// bytes of the highest first. Once it has cut, everything passes.
//
// Thread-safe.

#include <mutex>
#include <string_view>

#include "tests/process/proxy.hpp"

namespace fenceguard::test {

class FrameCutter {
 public:
  // frame counts from 1, over all connections.
  FrameCutter(Proxy::Direction direction, int frame) : direction_{direction}, frame_{frame} {}

  [[nodiscard]] Proxy::Filter filter() {
    return [this](std::size_t, Proxy::Direction direction, std::string_view piece) {
      return passed(direction, piece);
    };
  }

  [[nodiscard]] bool has_cut() {
    const std::scoped_lock lock{mutex_};
    return has_cut_;
  }

 private:
  std::size_t passed(Proxy::Direction direction, std::string_view piece) {
    const std::scoped_lock lock{mutex_};
    if (has_cut_ || direction != direction_) return piece.size();
    for (std::size_t i = 0; i < piece.size(); ++i) {
      if (left_in_frame_ > 0) {
        const auto step = std::min(left_in_frame_, piece.size() - i);
        left_in_frame_ -= step;
        i += step - 1;
        continue;
      }
      if (length_bytes_ == 0 && ++frames_ == frame_) {
        has_cut_ = true;
        return i;
      }
      length_ = (length_ << 8) | static_cast<unsigned char>(piece[i]);
      if (++length_bytes_ < 4) continue;
      left_in_frame_ = length_;
      length_ = 0;
      length_bytes_ = 0;
    }
    return piece.size();
  }

  const Proxy::Direction direction_;
  const int frame_;
  std::mutex mutex_;  // guards the following
  bool has_cut_ = false;
  int frames_ = 0;
  int length_bytes_ = 0;
  std::size_t length_ = 0;
  std::size_t left_in_frame_ = 0;
};

}  // namespace fenceguard::test
