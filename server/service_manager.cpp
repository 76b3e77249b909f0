#include "server/service_manager.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "guard/token.hpp"

namespace fenceguard {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any other thread
  return value != nullptr ? value : "";
}

// What is meant for another process, such as the shell that started this one, is not for us.
std::optional<milliseconds> watchdog_of_environment() {
  const auto process = variable("WATCHDOG_PID");
  if (!process.empty() && process != std::to_string(::getpid())) return std::nullopt;
  const auto interval = parse_decimal(variable("WATCHDOG_USEC"));
  if (!interval || *interval == 0) return std::nullopt;
  return std::max(milliseconds{1}, std::chrono::duration_cast<milliseconds>(microseconds{*interval}));
}

// The manager drops what it was told before the reload began, by its own clock.
std::int64_t monotonic_us() {
  return std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string longest_us(milliseconds longest) {
  return fmt::format("EXTEND_TIMEOUT_USEC={}", microseconds{longest}.count());
}

}  // namespace

ServiceManager::ServiceManager()
    : socket_{variable("NOTIFY_SOCKET")},
      watchdog_{socket_.empty() ? std::nullopt : watchdog_of_environment()} {}

void ServiceManager::ready(std::string_view status) const {
  send(fmt::format("READY=1\nSTATUS={}", status));
}

void ServiceManager::reloading() const {
  send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=reads tokens, keys and certificates again",
                   monotonic_us()));
}

void ServiceManager::stopping(milliseconds longest) const {
  send(fmt::format("STOPPING=1\n{}\nSTATUS=lets requests that were begun end", longest_us(longest)));
}

void ServiceManager::waiting(std::string_view status, milliseconds longest) const {
  send(fmt::format("{}\nSTATUS={}", longest_us(longest), status));
}

void ServiceManager::keep_alive() const {
  send("WATCHDOG=1");
}

void ServiceManager::send(std::string_view message) const {
  if (socket_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.size() >= sizeof address.sun_path) {
    spdlog::warn("event=notify_failed reason=\"the path in NOTIFY_SOCKET is too long\"");
    return;
  }
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  // An abstract name begins with a zero byte, which no variable can hold.
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    spdlog::warn("event=notify_failed reason=\"{}\"", std::generic_category().message(errno));
    return;
  }
  // A manager that does not read must not keep us from hearing signals.
  constexpr timeval limit{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const auto sent = ::sendto(descriptor, message.data(), message.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), bytes);
  if (sent < 0) spdlog::warn("event=notify_failed reason=\"{}\"", std::generic_category().message(errno));
  ::close(descriptor);
}

}  // namespace fenceguard
