#include "tests/process/proxy.hpp"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace fenceguard::test {

Proxy::Proxy(int server_port, Filter filter, std::size_t piece_bytes_max)
    : server_port_{server_port}, filter_{std::move(filter)}, piece_bytes_max_{piece_bytes_max} {
  if (listen(listener_.descriptor(), 256) != 0) throw std::runtime_error{"no proxy"};
  thread_ = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
}

Proxy::~Proxy() {
  thread_.request_stop();
  thread_.join();
  for (const auto& pair : pairs_) close_both(pair);
  for (const auto& [server, piece] : late_) close(server);
}

void Proxy::set(Way way) {
  way_ = way;
  if (std::this_thread::get_id() == thread_.get_id()) return;
  // What is read after the next turn's count is the new way.
  const auto turn = turn_.load();
  while (turn_.load() == turn) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

void Proxy::keep(const Pair& pair, std::string_view piece) {
  const std::lock_guard lock{late_mutex_};
  late_.emplace_back(dup(pair.server), piece);
}

void Proxy::arrive() {
  const std::lock_guard lock{late_mutex_};
  for (const auto& [server, piece] : std::exchange(late_, {})) {
    (void)send(server, piece.data(), piece.size(), MSG_NOSIGNAL);
    close(server);
  }
}

void Proxy::close_both(const Pair& pair) {
  close(pair.client);
  close(pair.server);
}

void Proxy::accept_one() {
  const int client = accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = way_ == Way::closed ? -1 : connect_to(server_port_);
  if (server < 0) {
    close(client);
    return;
  }
  // What comes in two pieces goes on in two, without waiting for the first one's acknowledgement.
  const int on = 1;
  for (const int descriptor : {client, server}) {
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  pairs_.push_back({accepted_++, client, server});
}

// False at the end of either side, or where the filter cut.
bool Proxy::pass(const Pair& pair, Direction direction) {
  const bool is_forth = direction == Direction::to_server;
  char buffer[buffer_bytes];
  const auto room = std::min(piece_bytes_max_, buffer_bytes);
  const auto size = recv(is_forth ? pair.client : pair.server, buffer, room, MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return true;
  if (size <= 0) return false;
  const auto all = static_cast<std::size_t>(size);
  const auto answer = filter_ ? filter_(pair.number, direction, {buffer, all}) : all;
  if (answer == late) {
    keep(pair, {buffer, all});
    return false;
  }
  const auto allowed = std::min(answer, all);
  std::size_t sent = 0;
  while (sent < allowed) {
    const auto now = send(is_forth ? pair.server : pair.client, buffer + sent, allowed - sent, MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += static_cast<std::size_t>(now);
  }
  return answer == all;
}

void Proxy::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    ++turn_;
    const auto way = way_.load();
    std::vector<pollfd> polled{{listener_.descriptor(), POLLIN, 0}};
    if (way == Way::open) {
      for (const auto& pair : pairs_) {
        polled.push_back({pair.client, POLLIN, 0});
        polled.push_back({pair.server, POLLIN, 0});
      }
    }
    if (way == Way::closed) {
      for (const auto& pair : std::exchange(pairs_, {})) close_both(pair);
    }
    if (poll(polled.data(), polled.size(), 10) <= 0) continue;
    if (polled.size() > 1) {
      std::vector<Pair> kept;
      for (const auto& pair : pairs_) {
        if (pass(pair, Direction::to_server) && pass(pair, Direction::to_client)) {
          kept.push_back(pair);
        } else {
          close_both(pair);
        }
      }
      pairs_ = std::move(kept);
    }
    if (polled[0].revents != 0) accept_one();
  }
}

}  // namespace fenceguard::test
