#pragma once

// Stream: one request whose body is read as it comes, and whose answer is sent as it is made; and
// StreamHandler, which serves them. For what cannot hold a body in memory. The session behind it keeps the
// edge: what is no request never gets here, and limits and deadlines are kept by it.
//
// Thread safety: the connection's thread only, on which all coroutines of it run.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/fast_path.hpp"
#include "server/http/net.hpp"
#include "server/http/wire/message.hpp"

namespace fenceguard::http {

// What came of waiting for a piece of a body.
enum class Piece {
  some,       // appended
  end,        // nothing more comes; what was appended is the rest
  gone,       // the client went away before the end
  late,       // it took longer than it may: answer 408
  malformed,  // not what was announced, or larger than the limit: answer refused()
};

class Stream {
 public:
  virtual ~Stream() = default;

  // The head; its body is empty.
  [[nodiscard]] virtual const Request& request() const noexcept = 0;
  [[nodiscard]] virtual bool has_body() const noexcept = 0;
  // The length of the body; nothing if it comes in chunks.
  [[nodiscard]] virtual std::optional<std::uint64_t> body_bytes() const noexcept = 0;
  [[nodiscard]] virtual bool expects_continue() const noexcept = 0;
  [[nodiscard]] virtual bool is_tls() const noexcept = 0;
  // The client's address without its port; 'unknown' for a Unix socket.
  [[nodiscard]] virtual const std::string& peer() const noexcept = 0;
  [[nodiscard]] virtual net::Loop& loop() noexcept = 0;

  // Appends to out what has come already, if that is the whole body, and says so; otherwise takes nothing.
  [[nodiscard]] virtual bool take_whole_body(std::string& out) = 0;
  // Appends up to bytes_max of the body to out, decoded. Waits until there is some; the first call sends
  // '100 Continue' if the client asked for it. The deadline for bodies counts while these calls wait, in
  // total. After 'gone', 'late' and 'malformed' a stream that is left without an answer is answered with
  // refused(). REQUIRES: bytes_max > 0.
  [[nodiscard]] virtual Task<Piece> read_body(std::string& out, std::size_t bytes_max) = 0;
  // From now on no wait for a piece of the body lasts longer than wait_max, and no piece comes after until:
  // that is 'late'.
  virtual void limit_body(std::chrono::milliseconds wait_max, SteadyTime until) = 0;
  // The answer to a body that did not come to its end.
  [[nodiscard]] virtual Response refused() const = 0;

  // An answer is named before it is handed over, or comes from a function: what stands in braces within
  // co_await is copied bitwise by g++ 12, and freed twice.

  // Sends an answer that is whole. After it, the connection goes on if nothing stands against it: an unread
  // body does. False: it could not be handed to the client.
  [[nodiscard]] virtual Task<bool> respond(Response response) = 0;
  // An answer in pieces: the head, with the length of its body or in chunks (to an HTTP/1.0 client: until the
  // end of the connection); response.body is empty. Then pieces, then finish(). The head goes out together
  // with the first piece; an empty piece sends it alone. An answer that has no body, such as to HEAD, takes
  // pieces and drops them. A stream that is left without finish() is cut, so that the client sees that
  // something is missing. False: the client is gone, or the pieces are not what was announced.
  [[nodiscard]] virtual Task<bool> begin(Response head, std::optional<std::uint64_t> body_bytes) = 0;
  [[nodiscard]] virtual Task<bool> write(std::string_view piece) = 0;
  [[nodiscard]] virtual Task<bool> finish() = 0;
  // From now on the client has so long to take each piece, instead of the limit for answers.
  virtual void limit_write(std::chrono::milliseconds write_max) = 0;

  // While something other than the client is waited for: has gone called, on this thread, if the client goes
  // away meanwhile, or is cut; within this call if it has gone already. A client that closes its sending side
  // counts as gone, because nothing tells the two apart. stop_watching() before the next call of the stream.
  virtual void watch(std::function<void()> gone) = 0;
  [[nodiscard]] virtual Task<void> stop_watching() = 0;

  // What the fast path has begun of this request, once; null: nothing.
  [[nodiscard]] virtual FastExchangePtr take_begun() noexcept { return nullptr; }
};

// Serves requests as streams. One handler serves all connections of a listener, on all its threads.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;

  // Answers one request. What it throws is answered as 500 if nothing was sent yet, and ends the connection.
  // A drain waits for it; a cut makes every wait of the stream end as 'gone', and waits for it as well: it
  // must end soon after its watch was told.
  [[nodiscard]] virtual Task<void> serve(Stream& stream) = 0;

  // Whether begin() takes any request.
  [[nodiscard]] virtual bool has_fast_path() const noexcept { return false; }
  // Begins to answer a request on the fast path. Null: nothing was begun, and serve() is called for it. What
  // request shows stays where it is until the exchange ends or is given back. Must not block.
  [[nodiscard]] virtual FastExchangePtr begin(const PlainRequest& /*request*/, FastClient& /*client*/) {
    return nullptr;
  }

  // As Handler::refuse.
  [[nodiscard]] virtual Response refuse(unsigned status, std::string_view why) = 0;
};

}  // namespace fenceguard::http
