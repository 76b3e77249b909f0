#pragma once

// MessageCut: a filter for Proxy that knows where the messages of a protocol begin, and cuts one connection,
// once, at a chosen message of one direction: before it, within it, or after it. What was passed on the
// server acts on all the same. Before it is armed and after the cut everything passes.
//
// Thread-safe. The framing is called on the proxy's thread.

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/process/proxy.hpp"

namespace fenceguard::test {

// The number in four bytes, the highest first.
[[nodiscard]] inline std::uint32_t number_at(std::string_view text, std::size_t at) {
  std::uint32_t number = 0;
  for (const char byte : text.substr(at, 4)) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

class MessageCut {
 public:
  // How a protocol frames its messages.
  struct Framing {
    // Of one message: is_first in its direction of its connection.
    std::function<std::size_t(Proxy::Direction, bool is_first)> head_bytes;
    // Of the whole message, its head included.
    std::function<std::size_t(std::string_view head)> size;
    // Whether it counts; left out: all do.
    std::function<bool(Proxy::Direction, bool is_first, std::string_view head)> counts = {};
  };
  enum class At {
    before,  // the message is not passed on
    within,  // its first half is
    after,   // all of it is, and nothing else
  };

  explicit MessageCut(Framing framing) : framing_{std::move(framing)} {}

  [[nodiscard]] Proxy::Filter filter() {
    return [this](std::size_t connection, Proxy::Direction direction, std::string_view piece) {
      const std::scoped_lock lock{mutex_};
      return pass(streams_[{connection, direction}], direction, piece);
    };
  }

  // Cuts at the message number (from 0) that counts and comes in that direction from now on.
  void arm(Proxy::Direction direction, int number, At at = At::before) {
    const std::scoped_lock lock{mutex_};
    armed_ = {direction, number, at};
    has_cut_ = false;
  }
  // True if it came to the cut since it was armed.
  bool disarm() {
    const std::scoped_lock lock{mutex_};
    armed_.reset();
    return has_cut_;
  }
  [[nodiscard]] bool has_cut() const {
    const std::scoped_lock lock{mutex_};
    return has_cut_;
  }

 private:
  struct Armed {
    Proxy::Direction direction;
    int left;
    At at;
  };
  struct Stream {
    bool is_first = true;
    std::string head;      // of the present message, as far as it came
    std::size_t left = 0;  // of the present message, after its head
    std::optional<std::size_t> left_before_cut;
  };

  std::size_t pass(Stream& stream, Proxy::Direction direction, std::string_view piece) {
    if (stream.left_before_cut) return pass_before_cut(stream, 0, piece.size());
    std::size_t start = 0;  // of the present message in this piece
    for (std::size_t i = 0; i < piece.size();) {
      if (stream.left > 0) {
        const auto step = std::min(stream.left, piece.size() - i);
        stream.left -= step;
        i += step;
        start = i;
        continue;
      }
      stream.head += piece[i++];
      if (stream.head.size() < framing_.head_bytes(direction, stream.is_first)) continue;
      const auto head = std::exchange(stream.head, {});
      const bool is_first = std::exchange(stream.is_first, false);
      const auto size = framing_.size(head);
      stream.left = size - head.size();
      if (is_chosen(direction, is_first, head)) {
        const auto at = std::exchange(armed_, std::nullopt)->at;
        const std::size_t passed = at == At::before ? 0 : at == At::within ? size / 2 : size;
        if (passed < head.size()) return start + std::min(passed, i - start);
        stream.left_before_cut = passed - head.size();
        return pass_before_cut(stream, i, piece.size());
      }
      if (stream.left == 0) start = i;
    }
    return piece.size();
  }

  bool is_chosen(Proxy::Direction direction, bool is_first, std::string_view head) {
    if (framing_.counts && !framing_.counts(direction, is_first, head)) return false;
    if (!armed_ || armed_->direction != direction || armed_->left-- > 0) return false;
    has_cut_ = true;
    return true;
  }

  // From position on.
  static std::size_t pass_before_cut(Stream& stream, std::size_t position, std::size_t size) {
    auto& left = *stream.left_before_cut;
    if (left < size - position) return position + left;
    left -= size - position;
    return left == 0 ? Proxy::all_and_cut : size;
  }

  const Framing framing_;
  mutable std::mutex mutex_;  // guards the following
  std::optional<Armed> armed_;
  bool has_cut_ = false;
  std::map<std::pair<std::size_t, Proxy::Direction>, Stream> streams_;
};

}  // namespace fenceguard::test
