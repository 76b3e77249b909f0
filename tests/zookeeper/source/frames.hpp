#pragma once

// FrameCut: a filter for Proxy that knows the frames of ZooKeeper's protocol: four bytes of length, then the
// xid. It counts, over all connections, the requests, the answers and the watches' events, and cuts the
// connection once, at a chosen one.
//
// The filter is called on the proxy's thread; the counts may be read by any.

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/process/proxy.hpp"

namespace fenceguard::test {

class FrameCut {
 public:
  enum class At {
    never,
    request,  // the n-th request does not reach the server
    answer,   // the n-th answer does not reach the client: what was asked for was done
  };
  FrameCut(At at, int n) : at_{at}, n_{n} {}

  [[nodiscard]] Proxy::Filter filter() {
    return [this](std::size_t connection, Proxy::Direction direction, std::string_view piece) {
      return pass(streams_[{connection, direction}], direction, piece);
    };
  }

  [[nodiscard]] bool has_cut() const { return has_cut_; }
  [[nodiscard]] int events() const { return events_; }

 private:
  struct Stream {
    bool is_greeted = false;  // the first frame of each direction opens the session and has no xid
    std::string head;         // of the present frame, as far as it came
    std::size_t left = 0;     // of the present frame, after its head
  };
  static constexpr std::size_t head_bytes = 8;

  static int number_at(const std::string& text, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(text[i]);
    return static_cast<int>(value);
  }

  std::size_t pass(Stream& stream, Proxy::Direction direction, std::string_view piece) {
    std::size_t start = 0;  // of the present frame in this piece
    for (std::size_t i = 0; i < piece.size();) {
      if (stream.left > 0) {
        const auto skipped = std::min(stream.left, piece.size() - i);
        stream.left -= skipped;
        i += skipped;
        start = i;
        continue;
      }
      stream.head += piece[i++];
      if (stream.head.size() < head_bytes) continue;
      const auto head = std::exchange(stream.head, {});
      stream.left = static_cast<std::size_t>(number_at(head, 0)) - 4;
      if (std::exchange(stream.is_greeted, true) && is_cut_at(direction, number_at(head, 4))) return start;
      if (stream.left == 0) start = i;
    }
    return piece.size();
  }

  // xid: -1 a watch's event, -2 a ping, -4 credentials, -8 watches set again, otherwise a call of ours.
  bool is_cut_at(Proxy::Direction direction, int xid) {
    if (xid == -1) ++events_;
    if (xid < 0) return false;
    const auto kind = direction == Proxy::Direction::to_server ? At::request : At::answer;
    if (kind != at_ || ++seen_ != n_) return false;
    has_cut_ = true;
    return true;
  }

  const At at_;
  const int n_;
  int seen_ = 0;  // of the proxy's thread, as are the streams
  std::map<std::pair<std::size_t, Proxy::Direction>, Stream> streams_;
  std::atomic<bool> has_cut_{false};
  std::atomic<int> events_{0};
};

}  // namespace fenceguard::test
