#include "server/demo/servers/local_server.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

constexpr int attempts_max = 5;
// Java takes its time on a busy machine.
constexpr std::chrono::seconds start_limit{60};

int free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool is_bound = bind(descriptor, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                        getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(descriptor);
  if (!is_bound) throw Unavailable("there is no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

}  // namespace

void LocalServer::open() {
  // Another process may take the port between our look and the server's bind.
  for (int attempt = 1;; ++attempt) {
    port_ = free_port();
    std::filesystem::create_directories(folder());
    try {
      start();
      return;
    } catch (const Unavailable&) {
      if (attempt == attempts_max || last_words().find("already in use") == std::string::npos) throw;
    }
  }
}

void LocalServer::start() {
  process_ = harness_.start(command());
  const auto is_decided = [this] {
    try {
      return process_->is_over() || serves();
    } catch (const Error&) {
      return false;
    }
  };
  harness_.wait_until(is_decided, "a start of " + product_, start_limit);
  if (process_->is_over()) throw Unavailable(fmt::format("{} did not start: {}", product_, last_words()));
}

void LocalServer::restart() {
  process_->kill();
  start();
}

std::string LocalServer::folder() const {
  return fmt::format("{}/{}-{}", harness_.folder(), product_, port_);
}

std::string LocalServer::last_words() const {
  std::ifstream stream{log_file()};
  std::string last = "no reason given";
  for (std::string line; std::getline(stream, line);)
    if (is_reason(line)) last = line;
  return last;
}

}  // namespace fenceguard::demo
