#include "demo/servers/local_server.hpp"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <filesystem>
#include <fstream>

#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

constexpr int attempts_max = 5;
// Java takes its time on a busy machine.
constexpr std::chrono::seconds start_limit{60};

int free_port() {
  namespace asio = boost::asio;
  asio::io_context context;
  const asio::ip::tcp::acceptor acceptor{context, {asio::ip::address_v4::loopback(), 0}};
  return acceptor.local_endpoint().port();
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
