#include "tests/redis/server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "guard/error.hpp"

namespace fenceguard::test {
namespace {

constexpr std::chrono::seconds limit{20};
constexpr std::chrono::milliseconds look_again{5};

std::string last_lines(const std::string& file) {
  std::ifstream stream{file};
  std::stringstream text;
  text << stream.rdbuf();
  const auto all = text.str();
  return all.substr(all.size() > 2000 ? all.size() - 2000 : 0);
}

// Binds to a port of 127.0.0.1, any if it is 0, and lets go of it: the port, or 0 if that was not possible.
int bound_port(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t length = sizeof address;
  const bool is_bound = bind(descriptor, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                        getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(descriptor);
  return is_bound ? ntohs(address.sin_port) : 0;
}

}  // namespace

int free_port() {
  constexpr int bus = 10'000;  // so far above its port is that of a cluster's bus
  for (;;) {
    const int port = bound_port(0);
    if (port == 0) throw std::runtime_error{"no free port"};
    if (port + bus < 65'536 && bound_port(port + bus) != 0) return port;
  }
}

RedisServer::RedisServer(std::vector<std::string> options)
    : options_{std::move(options)}, port_{free_port()} {
  start();
}

RedisServer::~RedisServer() {
  if (pid_ > 0) kill();
}

std::string RedisServer::url(const std::string& rest) const {
  return fmt::format("redis://127.0.0.1:{}{}", port_, rest);
}

void RedisServer::start() {
  const auto log = folder_.file("log");
  std::vector<std::string> words{"redis-server",
                                 "--port",
                                 std::to_string(port_),
                                 "--bind",
                                 "127.0.0.1",
                                 "--dir",
                                 folder(),
                                 "--unixsocket",
                                 socket(),
                                 "--logfile",
                                 log,
                                 "--appendonly",
                                 "no",
                                 "--save",
                                 "",
                                 "--databases",
                                 "16",
                                 "--daemonize",
                                 "no"};
  words.insert(words.end(), options_.begin(), options_.end());
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // Also where the test program is killed, and where it was before this line.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  if (pid_ < 0) throw std::runtime_error{"fork failed"};
  wait_until_it_answers();
}

void RedisServer::wait_until_it_answers() {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    bool is_up = connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (is_up) {
      // Whatever it says, even that a password is needed, but that it still loads.
      char answer[64]{};
      is_up = write(descriptor, "PING\r\n", 6) == 6 && read(descriptor, answer, sizeof answer - 1) > 0 &&
              std::string_view{answer}.find("LOADING") == std::string_view::npos;
    }
    close(descriptor);
    if (is_up) return;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      throw std::runtime_error{"redis-server did not start: " + last_lines(folder_.file("log"))};
    }
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error{"redis-server does not answer: " + last_lines(folder_.file("log"))};
    std::this_thread::sleep_for(look_again);
  }
}

// Redis may refuse a SIGTERM, as while it writes its first append-only file.
void RedisServer::wait_for_end() {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error{"redis-server does not end: " + last_lines(folder_.file("log"))};
    std::this_thread::sleep_for(look_again);
  }
  pid_ = -1;
}

void RedisServer::stop() {
  ::kill(pid_, SIGTERM);
  wait_for_end();
}

void RedisServer::kill() {
  ::kill(pid_, SIGKILL);
  wait_for_end();
}

void RedisServer::pause() {
  ::kill(pid_, SIGSTOP);
}

void RedisServer::resume() {
  ::kill(pid_, SIGCONT);
}

redis::Reply RedisServer::call(std::vector<std::string> words, const std::string& credentials) {
  const auto url = fmt::format("redis://{}127.0.0.1:{}", credentials, port_);
  redis::Connection connection{redis::address_of(Url::parse(url))};
  const std::vector<std::string_view> views{words.begin(), words.end()};
  return connection.call(views);
}

RedisCluster::RedisCluster(int masters) {
  for (int i = 0; i < masters; ++i) {
    nodes_.push_back(std::make_unique<RedisServer>(
        std::vector<std::string>{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000"}));
  }
  const int slots = 16'384;
  for (int i = 0; i < masters; ++i) {
    const auto first = std::to_string(slots * i / masters);
    const auto last = std::to_string(slots * (i + 1) / masters - 1);
    node(i).call({"CLUSTER", "ADDSLOTSRANGE", first, last});
    node(i).call({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    if (i > 0) node(i).call({"CLUSTER", "MEET", "127.0.0.1", std::to_string(node(0).port())});
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (int i = 0; i < masters; ++i) {
    while (node(i).call({"CLUSTER", "INFO"}).text.find("cluster_state:ok") == std::string::npos ||
           node(i).call({"CLUSTER", "SLOTS"}).elements.size() != static_cast<std::size_t>(masters)) {
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error{"no cluster came about"};
      std::this_thread::sleep_for(look_again);
    }
  }
}

std::string RedisCluster::url(const std::string& rest) const {
  std::string hosts;
  for (const auto& one : nodes_)
    hosts += fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",", one->port());
  return "redis://" + hosts + rest;
}

}  // namespace fenceguard::test
