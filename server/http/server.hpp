#pragma once

// Server: HTTP/1.1 over TCP or a Unix socket, on Boost.Asio and Beast. It moves bytes and keeps limits and
// deadlines; what a request means is the Handler's. Each connection lives on one thread.
//
// Thread safety: all public calls may be made from any thread.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http/limits.hpp"
#include "server/http/net.hpp"
#include "server/http/stream.hpp"
#include "server/http/wire/message.hpp"
#include "server/net/tls/tls.hpp"

namespace fenceguard::http {

class Server {
 public:
  // threads event loops, started by this call. Throws Unavailable if a thread cannot be made.
  explicit Server(unsigned threads);
  // Cuts what is still open, as drain(0) does.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds address and serves handler on it. address: HOST:PORT (port 0 picks a free one; IPv6 in brackets) or
  // unix:/path. Returns the address as bound. Throws InvalidInput for a malformed address and Unavailable
  // with a sentence (in use, not permitted, ...). A Unix socket's file left behind by a dead server is
  // replaced; one that answers is 'in use'; the file is removed at the end. With tls, nothing is spoken in
  // the clear. REQUIRES: handler outlives the server.
  std::string listen(const std::string& address, Handler& handler, const Limits& limits,
                     std::shared_ptr<const TlsContext> tls = nullptr);
  std::string listen(const std::string& address, StreamHandler& handler, const Limits& limits,
                     std::shared_ptr<const TlsContext> tls = nullptr);

  // Stops accepting, lets requests that were begun end, closes idle connections, and after at most timeout
  // cuts the rest. Blocks until then. True if nothing had to be cut. A reply after the cut is undelivered;
  // one after the server is gone does nothing. REQUIRES: not called by a handler.
  bool drain(std::chrono::milliseconds timeout);

  // Whether every event loop comes round to what it is given within limit: none hangs. Blocks until then.
  // REQUIRES: not called by a handler.
  [[nodiscard]] bool answers(std::chrono::milliseconds limit);

  // Requests that have been handed to a handler and not been answered.
  [[nodiscard]] std::int64_t in_flight() const noexcept;
  // Open connections.
  [[nodiscard]] std::int64_t connections() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fenceguard::http
