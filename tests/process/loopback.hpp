#pragma once

// Sockets of 127.0.0.1, as test servers and proxies need them.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <random>
#include <stdexcept>

namespace fenceguard::test {

[[nodiscard]] inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

// A connected socket, the caller's to close, or -1.
[[nodiscard]] inline int connect_to(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto address = loopback(port);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return descriptor;
  close(descriptor);
  return -1;
}

// A port that no connection to elsewhere is given, so that it is still free when a server that went away
// takes it again; whether anybody has it now is for bind() to tell. 0, which means any, where there is no
// such range.
[[nodiscard]] inline int port_of_a_server() {
  constexpr int lowest = 10'000;
  int first_of_clients = 0;
  std::ifstream{"/proc/sys/net/ipv4/ip_local_port_range"} >> first_of_clients;
  if (first_of_clients < 2 * lowest) return 0;
  std::random_device random;
  return std::uniform_int_distribution{lowest, first_of_clients - 1}(random);
}

// A socket bound to a port, a free one where it is 0. Listens once listen() is called on its descriptor.
// Throws std::runtime_error where somebody has the port.
class Loopback {
 public:
  explicit Loopback(int port = 0) : descriptor_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    bool is_bound = port != 0 && takes(port);
    for (int attempt = 0; port == 0 && attempt < attempts_max && !is_bound; ++attempt)
      is_bound = takes(port_of_a_server());
    auto address = loopback(0);
    socklen_t length = sizeof address;
    if (!is_bound || getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      close(descriptor_);
      throw std::runtime_error{"no free port"};
    }
    port_ = ntohs(address.sin_port);
  }
  ~Loopback() { close(descriptor_); }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] int port() const noexcept { return port_; }

 private:
  static constexpr int attempts_max = 100;

  [[nodiscard]] bool takes(int port) const {
    const auto address = loopback(port);
    return bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  int descriptor_;
  int port_ = 0;
};

}  // namespace fenceguard::test
