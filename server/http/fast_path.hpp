#pragma once

// The fast path: plain requests that are answered without a coroutine, by a handler that can. A session
// offers each plain request (PlainRequest) that has come whole; the handler begins an exchange with it, or
// leaves it. What the exchange cannot do itself, at any point, it gives back: then a coroutine goes on with
// the same request, as it was read here, and takes over what was begun. So a request means the same on both
// ways, and nothing is read or decided twice.
//
// Thread safety: the connection's thread only.

#include <memory>
#include <string>
#include <string_view>

#include "server/http/wire/plain_request.hpp"
#include "server/http/wire/response_writer.hpp"

namespace fenceguard::net {
class Loop;
}

namespace fenceguard::http {

// A request that was begun, as its handler keeps it. One that was not answered must see to what it left
// unfinished when it is released.
class FastExchange {
 public:
  // After begin() has returned it: a coroutine must go on at once, as after fall_back().
  [[nodiscard]] virtual bool is_given_back() const noexcept { return false; }
  // The last call.
  virtual void release() noexcept = 0;

  struct Release {
    void operator()(FastExchange* exchange) const noexcept { exchange->release(); }
  };

 protected:
  ~FastExchange() = default;
};
using FastExchangePtr = std::unique_ptr<FastExchange, FastExchange::Release>;

// The session, as the exchange sees it.
class FastClient {
 public:
  [[nodiscard]] virtual net::Loop& loop() noexcept = 0;
  // As Stream::peer(), and as Request::client.
  [[nodiscard]] virtual const std::string& peer() const noexcept = 0;
  [[nodiscard]] virtual bool is_local() const noexcept = 0;
  [[nodiscard]] virtual bool is_tls() const noexcept = 0;

  // How the answer is framed; it is written to out() from here on.
  [[nodiscard]] virtual Framing frame_answer() = 0;
  [[nodiscard]] virtual std::string& out() noexcept = 0;
  // Ends the exchange, after begin() has returned: sends what is in out(), and body behind it, and releases
  // the exchange. Or: a coroutine goes on, which may take the exchange (Stream::take_begun()).
  virtual void send_answer(std::string_view body) noexcept = 0;
  virtual void fall_back() noexcept = 0;

 protected:
  ~FastClient() = default;
};

}  // namespace fenceguard::http
