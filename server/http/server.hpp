#pragma once

// Server: a net::Server that serves HTTP/1.1 over TCP or a Unix socket, on Boost.Asio and Beast. It moves
// bytes and keeps limits and deadlines; what a request means is the Handler's. Each connection lives on one
// thread.
//
// Thread safety: all public calls may be made from any thread.

#include <memory>
#include <string>

#include "server/http/limits.hpp"
#include "server/http/net.hpp"
#include "server/http/stream.hpp"
#include "server/http/wire/message.hpp"
#include "server/net/server.hpp"
#include "server/net/tls/tls.hpp"

namespace fenceguard::http {

// in_flight(): requests that have been handed to a handler and not been answered. drain(): a reply after the
// cut is undelivered; one after the server is gone does nothing.
class Server : public net::Server {
 public:
  using net::Server::Server;

  // Binds address, as Address::parse() reads it, and serves handler on it. Throws InvalidInput for a
  // malformed address, and as net::Server::listen(). With tls, nothing is spoken in the clear. REQUIRES:
  // handler outlives the server.
  std::string listen(const std::string& address, Handler& handler, const Limits& limits,
                     std::shared_ptr<const TlsContext> tls = nullptr) {
    return listen(address, &handler, nullptr, limits, std::move(tls));
  }
  std::string listen(const std::string& address, StreamHandler& handler, const Limits& limits,
                     std::shared_ptr<const TlsContext> tls = nullptr) {
    return listen(address, nullptr, &handler, limits, std::move(tls));
  }

 private:
  std::string listen(const std::string& address, Handler* handler, StreamHandler* streams,
                     const Limits& limits, std::shared_ptr<const TlsContext> tls);
};

}  // namespace fenceguard::http
