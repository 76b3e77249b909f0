#include "tests/redis/server.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "guard/error.hpp"
#include "tests/process/loopback.hpp"

namespace fenceguard::test {
namespace {

constexpr std::chrono::seconds limit{60};
constexpr std::chrono::milliseconds look_again{5};

// A free one, so far below another free one as a cluster's bus is above its port: one that no connection is
// given, if that can be had.
int port_beside_its_bus() {
  constexpr int bus = 10'000;
  constexpr int first_of_clients = 32'768;  // by default
  for (int tries = 0;; ++tries) {
    const int port = free_port();
    const int end = tries < 1'000 ? first_of_clients : 65'536;
    if (port + bus < end && is_free(port + bus)) return port;
  }
}

// FENCEGUARD_REDIS_SERVER names another one, such as valkey-server.
std::string program() {
  const char* named = std::getenv("FENCEGUARD_REDIS_SERVER");
  return named != nullptr ? named : "redis-server";
}

std::vector<std::string> words_of(int port, const std::string& folder, const std::string& socket,
                                  std::vector<std::string> options) {
  std::vector<std::string> words{program(),
                                 "--port",
                                 std::to_string(port),
                                 "--bind",
                                 "127.0.0.1",
                                 "--dir",
                                 folder,
                                 "--unixsocket",
                                 socket,
                                 "--appendonly",
                                 "no",
                                 "--save",
                                 "",
                                 "--databases",
                                 "16",
                                 "--daemonize",
                                 "no"};
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

}  // namespace

RedisServer::RedisServer(std::vector<std::string> options)
    : port_{port_beside_its_bus()},
      process_{{words_of(port_, folder_.path(), socket(), std::move(options)), folder_.file("log")}} {
  constexpr int starts_max = 5;
  for (int starts = 1;; ++starts) {
    try {
      start();
      return;
    } catch (const std::runtime_error& error) {
      // Another test may have taken the port meanwhile.
      const bool is_taken =
          std::string_view{error.what()}.find("Address already in use") != std::string::npos;
      if (!is_taken || starts == starts_max) throw;
      port_ = port_beside_its_bus();
      process_.command().words.at(2) = std::to_string(port_);
    }
  }
}

std::string RedisServer::url(const std::string& rest) const {
  return fmt::format("redis://127.0.0.1:{}{}", port_, rest);
}

void RedisServer::start() {
  process_.start([this] { return answers(); });
}

// Whatever it says, even that a password is needed, but that it still loads.
bool RedisServer::answers() const {
  const int descriptor = connect_to(port_);
  if (descriptor < 0) return false;
  char answer[64]{};
  const bool is_up = write(descriptor, "PING\r\n", 6) == 6 &&
                     read(descriptor, answer, sizeof answer - 1) > 0 &&
                     std::string_view{answer}.find("LOADING") == std::string_view::npos;
  close(descriptor);
  return is_up;
}

redis::Reply RedisServer::call(std::vector<std::string> words, const std::string& credentials) {
  const auto url = fmt::format("redis://{}127.0.0.1:{}/0?timeout=60s", credentials, port_);
  redis::Connection connection{redis::address_of(Url::parse(url))};
  const std::vector<std::string_view> views{words.begin(), words.end()};
  return connection.call(views);
}

RedisCluster::RedisCluster(int masters) {
  for (int i = 0; i < masters; ++i) {
    nodes_.push_back(std::make_unique<RedisServer>(
        std::vector<std::string>{"--cluster-enabled", "yes", "--cluster-node-timeout", "60000"}));
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
