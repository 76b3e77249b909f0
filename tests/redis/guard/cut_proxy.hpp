#pragma once

// CutProxy: stands between a client and a server, and cuts a connection after so many bytes of one direction.
// One connection at a time.
//
// cut_after() and was_cut() may be called from any thread.

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

namespace fenceguard::test {

class CutProxy {
 public:
  enum class Direction { to_server, to_client };

  explicit CutProxy(int server_port) : server_port_{server_port} {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto address = loopback(0);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error{"no proxy"};
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread{[this](const std::stop_token& stop) { serve(stop); }};
  }

  ~CutProxy() {
    thread_.request_stop();
    thread_.join();
    close(listener_);
  }

  [[nodiscard]] int port() const noexcept { return port_; }

  // The next connection, and it alone.
  void cut_after(Direction direction, long bytes) {
    was_cut_ = false;
    direction_ = direction;
    bytes_ = bytes;
  }
  [[nodiscard]] bool was_cut() const noexcept { return was_cut_; }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
  }

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{listener_, POLLIN, 0};
      if (poll(&waiting, 1, 20) <= 0) continue;
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      auto address = loopback(server_port_);
      if (connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
        pump(stop, client, server);
      close(server);
      close(client);
    }
  }

  void pump(const std::stop_token& stop, int client, int server) {
    long left = bytes_.exchange(-1);  // -1: is not cut
    const bool is_limited = left >= 0;
    const int limited = direction_ == Direction::to_server ? client : server;
    while (!stop.stop_requested()) {
      pollfd both[2]{{client, POLLIN, 0}, {server, POLLIN, 0}};
      if (poll(both, 2, 20) <= 0) continue;
      for (int i = 0; i < 2; ++i) {
        if (both[i].revents == 0) continue;
        char buffer[4096];
        auto count = read(both[i].fd, buffer, sizeof buffer);
        if (count <= 0) return;
        const bool counts = is_limited && both[i].fd == limited;
        const bool is_end = counts && count > left;
        if (is_end) count = left;
        if (counts) left -= count;
        if (count > 0 && write(both[1 - i].fd, buffer, static_cast<std::size_t>(count)) != count) return;
        if (is_end) {
          was_cut_ = true;
          return;
        }
      }
    }
  }

  const int server_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<Direction> direction_{Direction::to_server};
  std::atomic<long> bytes_{-1};
  std::atomic<bool> was_cut_{false};
  std::jthread thread_;
};

}  // namespace fenceguard::test
