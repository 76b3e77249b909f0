#pragma once

// CuttingProxy: a TCP proxy before a Redis server that passes on so many bytes of its answers, over all
// connections together, and then cuts everything.

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

namespace fenceguard::test {

class CuttingProxy {
 public:
  CuttingProxy(int server_port, std::int64_t bytes) : server_port_{server_port}, left_{bytes} {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto address = loopback(0);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error{"no proxy"};
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
  }
  ~CuttingProxy() {
    thread_.request_stop();
    thread_.join();
    close(listener_);
  }
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] bool has_cut() const noexcept { return left_ <= 0; }

 private:
  struct Pair {
    int client;
    int server;
  };

  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
  }

  void accept_one(std::vector<Pair>& pairs) const {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto address = loopback(server_port_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || has_cut()) {
      close(client);
      close(server);
      return;
    }
    pairs.push_back({client, server});
  }

  // False at the end of either side, or of the bytes.
  bool pass(int from, int to, bool counts) {
    char buffer[4096];
    const auto size = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) return true;
    if (size <= 0) return false;
    const auto allowed = counts ? std::min<std::int64_t>(size, left_.load()) : size;
    if (counts) left_ -= size;
    if (send(to, buffer, static_cast<std::size_t>(allowed), MSG_NOSIGNAL) != allowed) return false;
    return allowed == size && !(counts && has_cut());
  }

  void run(const std::stop_token& stop) {
    std::vector<Pair> pairs;
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled{{listener_, POLLIN, 0}};
      for (const auto& pair : pairs) {
        polled.push_back({pair.client, POLLIN, 0});
        polled.push_back({pair.server, POLLIN, 0});
      }
      if (poll(polled.data(), polled.size(), 20) <= 0) continue;
      std::vector<Pair> kept;
      for (const auto& pair : pairs) {
        if (pass(pair.client, pair.server, false) && pass(pair.server, pair.client, true)) {
          kept.push_back(pair);
        } else {
          close(pair.client);
          close(pair.server);
        }
      }
      pairs = std::move(kept);
      if (polled[0].revents != 0) accept_one(pairs);
    }
    for (const auto& pair : pairs) {
      close(pair.client);
      close(pair.server);
    }
  }

  const int server_port_;
  std::atomic<std::int64_t> left_;
  int listener_ = -1;
  int port_ = 0;
  std::jthread thread_;
};

}  // namespace fenceguard::test
