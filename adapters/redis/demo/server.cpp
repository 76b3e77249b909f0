#include "adapters/redis/demo/server.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "guard/error.hpp"
#include "guard/url.hpp"

namespace fenceguard::redis::demos {
namespace {

constexpr int attempts_max = 5;

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

Server::Server(Stage& stage, std::vector<std::string> options, std::map<std::string, std::string> environment)
    : stage_{stage}, options_{std::move(options)}, environment_{std::move(environment)} {
  // Somebody may take the port between our look and the server's bind.
  for (int attempt = 1;; ++attempt) {
    port_ = free_port();
    try {
      start();
      return;
    } catch (const Unavailable&) {
      if (attempt == attempts_max || last_words().find("already in use") == std::string::npos) throw;
    }
  }
}

std::string Server::url() const {
  return fmt::format("redis://127.0.0.1:{}?timeout=2s&connect_timeout=1s", port_);
}

Address Server::address() const {
  return address_of(Url::parse(url()));
}

Reply Server::call(const std::vector<std::string>& words) const {
  Connection connection{address()};
  const std::vector<std::string_view> views{words.begin(), words.end()};
  return connection.call(views);
}

std::string Server::info(const std::string& section, const std::string& name) const {
  const auto text = call({"INFO", section}).text;
  const auto at = text.find(name + ':');
  if (at == std::string::npos) return {};
  const auto start = at + name.size() + 1;
  return text.substr(start, text.find('\r', start) - start);
}

void Server::restart() {
  process_->kill();
  start();
}

void Server::start() {
  std::filesystem::create_directories(folder());
  StageCommand command{.program = "redis-server", .package = "redis-server", .arguments = {}};
  command.arguments = {"--port",       std::to_string(port_),
                       "--bind",       "127.0.0.1",
                       "--dir",        folder(),
                       "--logfile",    log_file(),
                       "--save",       "",
                       "--appendonly", "no",
                       "--daemonize",  "no"};
  command.arguments.insert(command.arguments.end(), options_.begin(), options_.end());
  command.environment = environment_;
  process_ = stage_.start(command);
  stage_.wait_until([this] { return process_->is_over() || answers(); }, "a start of redis-server");
  if (process_->is_over()) throw Unavailable(fmt::format("redis-server did not start: {}", last_words()));
}

// Whether it is ours that answers there, and not somebody else's.
bool Server::answers() const {
  try {
    return info("server", "process_id") == std::to_string(process_->pid());
  } catch (const Unavailable&) {
    return false;
  }
}

void Server::lose_data() {
  std::filesystem::remove_all(folder());
}

std::string Server::folder() const {
  return fmt::format("{}/redis-{}", stage_.folder(), port_);
}

std::string Server::log_file() const {
  return folder() + "/log";
}

std::string Server::last_words() const {
  std::ifstream stream{log_file()};
  std::string last = "no reason given";
  for (std::string line; std::getline(stream, line);)
    if (line.find(" # ") != std::string::npos) last = line.substr(line.find(" # ") + 3);
  return last;
}

}  // namespace fenceguard::redis::demos
