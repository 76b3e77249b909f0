#pragma once

// Address: where a server listens or a client connects: HOST:PORT, [IPv6]:PORT or unix:/path.

#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace fenceguard::net {

struct Address {
  std::string host;  // name or number, IPv6 without brackets; empty for a Unix socket
  std::uint16_t port = 0;
  std::string path;  // of a Unix socket

  // Throws InvalidInput with a sentence.
  [[nodiscard]] static Address parse(const std::string& text);

  [[nodiscard]] bool is_unix() const noexcept { return !path.empty(); }

  // As parse() reads it.
  [[nodiscard]] std::string to_string() const;
};

using Endpoint = boost::asio::generic::stream_protocol::endpoint;

// What address stands for; a name may stand for several. Asks the resolver, and so may block. Throws
// Unavailable if the name is not known.
[[nodiscard]] std::vector<Endpoint> resolve(const Address& address);

// endpoint as an Address would write it.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

// The host at the other end of a connected socket, without its port; 'unknown' for a Unix socket.
[[nodiscard]] std::string peer_host(int socket);

// Whether only this machine can reach address: a Unix socket, or a host all of whose addresses are loopback.
// Throws as parse() and resolve() do.
[[nodiscard]] bool is_loopback(const std::string& address);

}  // namespace fenceguard::net
