#include "server/net/address.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <charconv>
#include <string_view>

#include "guard/error.hpp"

namespace fenceguard::net {
namespace {

namespace ip = boost::asio::ip;

constexpr std::string_view unix_prefix = "unix:";

Address parse_unix(std::string_view path) {
  constexpr std::size_t path_max = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty())
    throw InvalidInput("an address that begins with unix: names the socket's file: unix:/path");
  if (path.size() > path_max) {
    throw InvalidInput(fmt::format("the path of a Unix socket takes at most {} bytes", path_max));
  }
  Address address;
  address.path = path;
  return address;
}

std::uint16_t parse_port(std::string_view text, const std::string& address) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw InvalidInput(fmt::format("'{}' does not end in a port from 0 to 65535", address));
  }
  return port;
}

// The IP address of endpoint, which is TCP.
ip::tcp::endpoint tcp_endpoint(const Endpoint& endpoint) {
  ip::tcp::endpoint result;
  result.resize(endpoint.size());
  std::copy_n(reinterpret_cast<const char*>(endpoint.data()), endpoint.size(),
              reinterpret_cast<char*>(result.data()));
  return result;
}

ip::address unmapped(const ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return ip::make_address_v4(ip::v4_mapped, address.to_v6());
}

bool is_loopback_ip(const ip::address& address) {
  return unmapped(address).is_loopback();
}

}  // namespace

Address Address::parse(const std::string& text) {
  const std::string_view view = text;
  if (view.find('\0') != std::string_view::npos) throw InvalidInput("an address holds no NUL");
  if (view.substr(0, unix_prefix.size()) == unix_prefix) return parse_unix(view.substr(unix_prefix.size()));
  const auto colon = view.rfind(':');
  auto host = view.substr(0, std::min(colon, view.size()));
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (has_brackets) host = host.substr(1, host.size() - 2);
  const bool is_bad_host = host.empty() || host.find_first_of("[]/@ ") != std::string_view::npos ||
                           (!has_brackets && host.find(':') != std::string_view::npos);
  if (colon == std::string_view::npos || is_bad_host) {
    throw InvalidInput(
        fmt::format("'{}' is no address: it reads HOST:PORT, [IPV6]:PORT or unix:/path", text));
  }
  Address address;
  address.host = host;
  address.port = parse_port(view.substr(colon + 1), text);
  return address;
}

std::string Address::to_string() const {
  if (is_unix()) return fmt::format("{}{}", unix_prefix, path);
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::vector<Endpoint> resolve(const Address& address) {
  if (address.is_unix()) return {Endpoint{boost::asio::local::stream_protocol::endpoint{address.path}}};
  boost::system::error_code error;
  const auto number = ip::make_address(address.host, error);
  if (!error) return {Endpoint{ip::tcp::endpoint{number, address.port}}};
  boost::asio::io_context context;
  ip::tcp::resolver resolver{context};
  const auto results =
      resolver.resolve(address.host, std::to_string(address.port), ip::tcp::resolver::numeric_service, error);
  if (error) throw Unavailable(fmt::format("the host '{}' is not known: {}", address.host, error.message()));
  std::vector<Endpoint> endpoints;
  for (const auto& result : results) endpoints.emplace_back(result.endpoint());
  return endpoints;
}

std::string to_string(const Endpoint& endpoint) {
  if (endpoint.protocol().family() == AF_UNIX) {
    const auto* socket = reinterpret_cast<const sockaddr_un*>(endpoint.data());
    return fmt::format("{}{}", unix_prefix, socket->sun_path);
  }
  const auto tcp = tcp_endpoint(endpoint);
  return Address{tcp.address().to_string(), tcp.port(), {}}.to_string();
}

std::string peer_host(int socket) {
  Endpoint endpoint;
  auto bytes = static_cast<socklen_t>(endpoint.capacity());
  if (::getpeername(socket, endpoint.data(), &bytes) != 0) return "unknown";
  endpoint.resize(bytes);
  const auto family = endpoint.protocol().family();
  if (family != AF_INET && family != AF_INET6) return "unknown";
  return unmapped(tcp_endpoint(endpoint).address()).to_string();
}

bool is_loopback(const std::string& text) {
  const auto address = Address::parse(text);
  if (address.is_unix()) return true;
  const auto endpoints = resolve(address);
  return std::all_of(endpoints.begin(), endpoints.end(), [](const Endpoint& endpoint) {
    return is_loopback_ip(tcp_endpoint(endpoint).address());
  });
}

}  // namespace fenceguard::net
