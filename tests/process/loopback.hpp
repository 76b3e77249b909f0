#pragma once

// Sockets of 127.0.0.1, as test servers and proxies need them.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
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

// A socket bound to a port, a free one where it is 0. Listens once listen() is called on its descriptor.
// Throws std::runtime_error where somebody has the port.
class Loopback {
 public:
  explicit Loopback(int port = 0) : descriptor_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    auto address = loopback(port);
    socklen_t length = sizeof address;
    if (bind(descriptor_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
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
  int descriptor_;
  int port_ = 0;
};

}  // namespace fenceguard::test
