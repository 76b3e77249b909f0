#include "server/http/session.hpp"

namespace fenceguard::http {
namespace {

constexpr std::chrono::milliseconds feed_pause{100};
// A client that takes so long for one piece is not reading.
constexpr std::chrono::milliseconds piece_max{10'000};

}  // namespace

// It asks the feed instead of being woken by it: what happens elsewhere then has nothing to do with who looks
// on.
Task<bool> Session::serve_feed() {
  Response head = std::move(*answer_);
  const auto feed = std::move(head.feed);
  SessionStream& stream = stream_.emplace(*this);
  goes_on_ = false;
  if (connection_.is_watching()) co_await connection_.stop_watching();
  stream.limit_write(piece_max);
  bool is_open = co_await stream.begin(std::move(head), std::nullopt);
  Timer pause{connection_.loop().context()};
  std::string piece;
  while (is_open && !is_ending_ && !connection_.loop().is_draining() && !connection_.is_peer_gone()) {
    piece.clear();
    const bool goes_on = feed->read(piece);
    is_open = co_await stream.write(piece);
    if (!is_open || !goes_on) break;
    pause.expires_after(feed_pause);
    (void)co_await pause.async_wait(net::as_result);
  }
  if (is_open) co_await stream.finish();
  if (stream.state() == SessionStream::State::begun) connection_.transport().reset();
  co_return goes_on_;
}

}  // namespace fenceguard::http
