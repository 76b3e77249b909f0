#pragma once

// A proxy before a server that breaks connections at a chosen statement. The first message of a client that
// holds the word is handed on or not, and its connection is then closed before the client hears of the
// answer.
//
// Thread-safe.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fenceguard::postgres::test {

class Proxy {
 public:
  explicit Proxy(int server_port) : server_port_{server_port}, listener_{::socket(AF_INET, SOCK_STREAM, 0)} {
    auto address = loopback(0);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("the proxy cannot listen");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread{[this] { accept_all(); }};
  }
  ~Proxy() {
    is_stopping_ = true;
    acceptor_.join();
    for (auto& link : links_) link.join();
    ::close(listener_);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }

  enum class Cut { before_server_sees_it, after_server_answered };
  // Breaks the next connection that sends the word, once.
  void cut_at(std::string word, Cut cut) {
    const std::scoped_lock lock{mutex_};
    word_ = std::move(word);
    cut_ = cut;
  }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  static bool is_readable(int socket, int wait_ms) {
    pollfd watched{socket, POLLIN, 0};
    return ::poll(&watched, 1, wait_ms) > 0;
  }

  void accept_all() {
    while (!is_stopping_) {
      if (!is_readable(listener_, 20)) continue;
      const int client = ::accept(listener_, nullptr, nullptr);
      links_.emplace_back([this, client] { carry(client); });
    }
  }

  void carry(int client) {
    const int server = ::socket(AF_INET, SOCK_STREAM, 0);
    const auto address = loopback(server_port_);
    bool is_open = ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    while (is_open && !is_stopping_) {
      std::array<pollfd, 2> watched{{{client, POLLIN, 0}, {server, POLLIN, 0}}};
      ::poll(watched.data(), watched.size(), 20);
      if (watched[0].revents != 0) is_open = from_client(client, server);
      if (is_open && watched[1].revents != 0) is_open = !hand_on(server, client).empty();
    }
    ::close(server);
    ::close(client);
  }

  bool from_client(int client, int server) {
    std::array<char, 65536> buffer;
    const auto count = ::recv(client, buffer.data(), buffer.size(), 0);
    if (count <= 0) return false;
    const std::string_view bytes{buffer.data(), static_cast<std::size_t>(count)};
    const auto cut = take_cut(bytes);
    if (cut == Cut::before_server_sees_it) return false;
    if (::send(server, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return false;
    if (!cut) return true;
    (void)is_readable(server, 10'000);
    return false;
  }

  static std::string hand_on(int from, int to) {
    std::array<char, 65536> buffer;
    const auto count = ::recv(from, buffer.data(), buffer.size(), 0);
    if (count <= 0) return {};
    if (::send(to, buffer.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL) < 0) return {};
    return {buffer.data(), static_cast<std::size_t>(count)};
  }

  std::optional<Cut> take_cut(std::string_view bytes) {
    const std::scoped_lock lock{mutex_};
    if (word_.empty() || bytes.find(word_) == std::string_view::npos) return std::nullopt;
    word_.clear();
    return cut_;
  }

  const int server_port_;
  int listener_;
  int port_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;  // guards the following
  std::string word_;
  Cut cut_{};
  std::vector<std::thread> links_;  // the acceptor's, until it has ended
  std::thread acceptor_;
};

}  // namespace fenceguard::postgres::test
