#pragma once

// ZooKeeper's frames, for MessageCut: four bytes of length, then the xid. FrameCut counts, over all
// connections, the requests, the answers and the watches' events, and cuts the connection once, at a chosen
// request or answer.
//
// The filter is called on the proxy's thread; the counts may be read by any.

#include <atomic>

#include "tests/process/message_cut.hpp"

namespace fenceguard::test {

[[nodiscard]] inline MessageCut::Framing frames() {
  return {.head_bytes = [](Proxy::Direction, bool) { return std::size_t{8}; },
          .size = [](std::string_view head) { return std::size_t{4} + number_at(head, 0); }};
}

class FrameCut {
 public:
  enum class At {
    never,
    request,  // the n-th request does not reach the server
    answer,   // the n-th answer does not reach the client: what was asked for was done
  };
  FrameCut(At at, int n) {
    const auto direction = at == At::request ? Proxy::Direction::to_server : Proxy::Direction::to_client;
    if (at != At::never) cut_.arm(direction, n - 1);
  }

  [[nodiscard]] Proxy::Filter filter() { return cut_.filter(); }
  [[nodiscard]] bool has_cut() const { return cut_.has_cut(); }
  [[nodiscard]] int events() const { return events_; }

 private:
  // The first frame of each direction opens the session and has no xid. xid: -1 a watch's event, -2 a ping,
  // -4 credentials, -8 watches set again, otherwise a call of ours.
  bool counts(bool is_first, std::string_view head) {
    if (is_first) return false;
    const auto xid = static_cast<std::int32_t>(number_at(head, 4));
    if (xid == -1) ++events_;
    return xid >= 0;
  }

  static MessageCut::Framing counted(FrameCut& cut) {
    auto framing = frames();
    framing.counts = [&cut](Proxy::Direction, bool is_first, std::string_view head) {
      return cut.counts(is_first, head);
    };
    return framing;
  }

  std::atomic<int> events_{0};
  MessageCut cut_{counted(*this)};
};

}  // namespace fenceguard::test
