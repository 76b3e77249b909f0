#pragma once

// Address: where a Redis server is and how to speak to it, from a redis:// URL.
//
//   redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DATABASE]   TCP; several hosts: seeds of one
//   cluster redis:///PATH/TO/SOCKET, or redis:PATH                            a Unix socket; database with
//   ?db=N
//
// Parameters for every redis: URL: prefix (of all our keys, 'fenceguard:'), timeout (for one answer, 5s),
// connect_timeout (2s), db. Other parameters belong to what the URL opens.
//
// Values; the functions are thread-safe.

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "guard/source/url.hpp"

namespace fenceguard::redis {

// One server: a host and a port, or a Unix socket.
struct Endpoint {
  std::string host;  // empty: socket
  int port = 6379;
  std::string socket;  // path

  friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
};

// 'host:port', '[::1]:port', or the socket's path.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

// HOST, HOST:PORT or [HOST]:PORT. Throws InvalidInput.
[[nodiscard]] Endpoint parse_endpoint(std::string_view text);

struct Address {
  std::vector<Endpoint> endpoints;  // at least one
  std::string user;
  std::string password;
  int database = 0;
  std::chrono::milliseconds connect_timeout{2'000};
  std::chrono::milliseconds timeout{5'000};  // for one answer
  std::string prefix = "fenceguard:";        // of all our keys: the namespace
  std::string shown;                         // the URL without its password

  // The same, but for this server alone.
  [[nodiscard]] Address at(const Endpoint& endpoint) const;
};

// Throws InvalidInput for a parameter that is neither known to all nor in own, or a URL that is no such URL.
[[nodiscard]] Address address_of(const Url& url, std::initializer_list<std::string_view> own = {});

}  // namespace fenceguard::redis
