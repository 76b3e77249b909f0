#include "server/http/server.hpp"

#include <utility>

#include "server/http/session.hpp"

namespace fenceguard::http {

std::string Server::listen(const std::string& text, Handler* handler, StreamHandler* streams,
                           const Limits& limits, std::shared_ptr<const TlsContext> tls) {
  const auto address = Address::parse(text);
  return net::Server::listen(address, std::make_shared<Service>(handler, streams, limits, std::move(tls),
                                                                address.is_unix(), counter()));
}

}  // namespace fenceguard::http
