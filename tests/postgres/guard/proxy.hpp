#pragma once

// A proxy between one client and PostgreSQL that forwards whole messages and cuts the connection at a chosen
// one: before it is forwarded, after it was forwarded, or in the middle of it. What was cut the client cannot
// see; what was forwarded the server acts on all the same.
// One connection at a time. Thread-safe.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <poll.h>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace fenceguard::test {

class Proxy {
 public:
  enum class From { client, server };
  enum class Cut {
    before,  // the message is not forwarded
    within,  // its first bytes are
    after,   // all of it is, and nothing else
  };

  explicit Proxy(int server_port) : server_port_{server_port} {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    auto address = loopback(0);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 8) != 0) {
      throw std::runtime_error{"the proxy cannot listen"};
    }
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread{[this](const std::stop_token& stop) { serve(stop); }};
  }

  ~Proxy() {
    thread_.request_stop();
    thread_.join();
    close(listener_);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  [[nodiscard]] std::string port() const { return std::to_string(port_); }

  // Cuts at the message number (from 0) that comes from that side from now on.
  void arm(From from, int number, Cut cut) {
    const std::lock_guard lock{mutex_};
    armed_ = true, was_cut_ = false;
    from_ = from, left_ = number, cut_ = cut;
  }

  // True if it came to the cut since it was armed. Disarms.
  bool disarm() {
    const std::lock_guard lock{mutex_};
    armed_ = false;
    return was_cut_;
  }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{listener_, POLLIN, 0};
      if (poll(&waiting, 1, 20) != 1) continue;
      const int client = accept(listener_, nullptr, nullptr);
      const int server = socket(AF_INET, SOCK_STREAM, 0);
      const auto address = loopback(server_port_);
      if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        forward(stop, client, server);
      }
      close(client);
      close(server);
    }
  }

  void forward(const std::stop_token& stop, int client, int server) {
    std::string from_client;
    std::string from_server;
    bool is_started = false;  // the client's first message has no type
    while (!stop.stop_requested()) {
      pollfd both[2]{{client, POLLIN, 0}, {server, POLLIN, 0}};
      if (poll(both, 2, 20) <= 0) continue;
      if (both[0].revents != 0 && !pump(client, server, From::client, from_client, is_started)) return;
      bool is_typed = true;
      if (both[1].revents != 0 && !pump(server, client, From::server, from_server, is_typed)) return;
    }
  }

  // False when the connection is over.
  bool pump(int source, int target, From from, std::string& buffer, bool& is_typed) {
    char bytes[65536];
    const auto size = recv(source, bytes, sizeof bytes, 0);
    if (size <= 0) return false;
    buffer.append(bytes, static_cast<std::size_t>(size));
    while (true) {
      const std::size_t head = is_typed ? 5 : 4;
      if (buffer.size() < head) return true;
      const std::size_t length = length_at(buffer, head - 4) + head - 4;
      if (buffer.size() < length) return true;
      const std::string message = buffer.substr(0, length);
      buffer.erase(0, length);
      is_typed = true;
      if (!pass(target, from, message)) return false;
    }
  }

  static std::size_t length_at(const std::string& buffer, std::size_t at) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(buffer[at + i]);
    return length;
  }

  bool pass(int target, From from, const std::string& message) {
    const std::lock_guard lock{mutex_};
    const bool is_cut = armed_ && from == from_ && left_-- == 0;
    if (is_cut) was_cut_ = true;
    if (is_cut && cut_ == Cut::before) return false;
    const auto size = is_cut && cut_ == Cut::within ? message.size() / 2 : message.size();
    if (send(target, message.data(), size, MSG_NOSIGNAL) < 0) return false;
    return !is_cut;
  }

  const int server_port_;
  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  bool armed_ = false, was_cut_ = false;
  From from_ = From::client;
  int left_ = 0;
  Cut cut_ = Cut::before;
  std::jthread thread_;
};

}  // namespace fenceguard::test
