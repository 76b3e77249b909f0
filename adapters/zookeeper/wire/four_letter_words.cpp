#include "adapters/zookeeper/wire/four_letter_words.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace fenceguard::zookeeper {
namespace {

constexpr int timeout_ms = 3'000;
constexpr std::size_t answer_bytes_max = 1 << 20;

struct CloseSocket {
  int descriptor;
  ~CloseSocket() { close(descriptor); }
};

bool is_ready(int descriptor, short events) {
  pollfd polled{descriptor, events, 0};
  return poll(&polled, 1, timeout_ms) == 1;
}

bool is_connected(int descriptor, const addrinfo& to) {
  if (connect(descriptor, to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS || !is_ready(descriptor, POLLOUT)) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

std::optional<std::string> ask_at(const addrinfo& to, std::string_view word) {
  const int descriptor = socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol);
  if (descriptor < 0) return std::nullopt;
  const CloseSocket closing{descriptor};
  if (!is_connected(descriptor, to)) return std::nullopt;
  if (send(descriptor, word.data(), word.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(word.size()))
    return std::nullopt;
  std::string answer;
  char buffer[4096];
  while (answer.size() < answer_bytes_max && is_ready(descriptor, POLLIN)) {
    const auto size = recv(descriptor, buffer, sizeof buffer, 0);
    if (size <= 0) break;
    answer.append(buffer, static_cast<std::size_t>(size));
  }
  if (answer.empty()) return std::nullopt;
  return answer;
}

}  // namespace

std::vector<std::string> each_host(const std::string& hosts) {
  std::vector<std::string> all;
  for (std::size_t begin = 0;;) {
    const auto comma = hosts.find(',', begin);
    all.push_back(hosts.substr(begin, comma - begin));
    if (comma == std::string::npos) return all;
    begin = comma + 1;
  }
}

std::optional<std::string> ask_server(const std::string& host, std::string_view word) {
  const auto colon = host.rfind(':');
  auto name = host.substr(0, colon);
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), host.substr(colon + 1).c_str(), &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{found, freeaddrinfo};
  for (const auto* one = found; one != nullptr; one = one->ai_next) {
    if (auto answer = ask_at(*one, word)) return answer;
  }
  return std::nullopt;
}

bool is_forbidden(const std::string& answer) {
  return answer.find("is not executed because it is not in the whitelist") != std::string::npos;
}

std::optional<std::string> after(const std::string& text, std::string_view name) {
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const std::string_view line{text.data() + begin, end - begin};
    if (line.starts_with(name)) return std::string{line.substr(name.size())};
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace fenceguard::zookeeper
