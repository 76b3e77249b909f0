#pragma once

// FrameHook: acts at the first moment at which a client sends certain bytes, before a Proxy passes them on:
// between what the client read and what it writes on the strength of it.
//
// The filter is called on the proxy's own thread.

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "tests/process/proxy.hpp"

namespace fenceguard::test {

class FrameHook {
 public:
  FrameHook(std::string bytes, std::function<void()> action)
      : bytes_{std::move(bytes)}, action_{std::move(action)} {}

  [[nodiscard]] Proxy::Filter filter() {
    return [this](std::size_t, Proxy::Direction direction, std::string_view piece) {
      if (direction == Proxy::Direction::to_server && !has_acted_) look_at(piece);
      return piece.size();
    };
  }

  [[nodiscard]] bool has_acted() const { return has_acted_; }

 private:
  void look_at(std::string_view piece) {
    seen_ += piece;
    if (seen_.find(bytes_) != seen_.npos) {
      has_acted_ = true;
      action_();
    }
    if (seen_.size() > bytes_.size()) seen_.erase(0, seen_.size() - bytes_.size());
  }

  const std::string bytes_;
  const std::function<void()> action_;
  std::string seen_;  // the end of what was passed on
  std::atomic<bool> has_acted_{false};
};

}  // namespace fenceguard::test
