#include "adapters/zookeeper/demo/server.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "guard/clock.hpp"
#include "guard/error.hpp"
#include "guard/url.hpp"

namespace fenceguard::zookeeper::demos {
namespace {

constexpr int attempts_max = 5;
constexpr int word_answer_ms = 1'000;
// Java takes its time on a busy machine.
constexpr std::chrono::seconds start_limit{60};
constexpr std::chrono::milliseconds look_again{20};

class Socket {
 public:
  Socket() : descriptor_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {}
  ~Socket() { close(descriptor_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

int free_port() {
  const Socket held;
  auto address = loopback(0);
  socklen_t length = sizeof address;
  if (bind(held.descriptor(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(held.descriptor(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw Unavailable("there is no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

// Its manifest names the other jars.
std::string find_jar(const std::string& name, const std::string& package) {
  for (const auto* folder : {"/usr/share/java/", "/usr/local/share/java/"}) {
    if (std::filesystem::exists(folder + name)) return folder + name;
  }
  throw Unavailable(
      fmt::format("{} was not found in /usr/share/java, and this story is told with a real ZooKeeper server; "
                  "on Debian it is in the package {}",
                  name, package));
}

}  // namespace

Server::Server(Stage& stage) : stage_{stage} {
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

std::string Server::url(const std::string& rest) const {
  return fmt::format("zookeeper://127.0.0.1:{}{}", port_, rest);
}

Address Server::address() const {
  return address_of(Url::parse(url()));
}

void Server::start() {
  const auto data = folder() + "/data";
  std::filesystem::create_directories(data);
  const auto file = folder() + "/zoo.cfg";
  std::ofstream{file} << "tickTime=100\nminSessionTimeout=200\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n"
                         "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
                      << fmt::format("clientPort={}\ndataDir={}\n", port_, data);
  StageCommand command{.program = "java", .package = "default-jre-headless", .arguments = {}};
  // Quick to start, and small.
  command.arguments = {
      "-Xmx128m",
      "-XX:+UseSerialGC",
      "-XX:TieredStopAtLevel=1",
      "-XX:-UsePerfData",
      "-Xshare:auto",
      "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
      "-Dorg.slf4j.simpleLogger.logFile=" + folder() + "/log",
      "-Dzookeeper.jmx.log4j.disable=true",
      "-Dzookeeper.preAllocSize=1024",
      "-cp",
      find_jar("slf4j-simple.jar", "libslf4j-java") + ':' + find_jar("zookeeper.jar", "libzookeeper-java"),
      "org.apache.zookeeper.server.quorum.QuorumPeerMain",
      file};
  process_ = stage_.start(command);
  const auto deadline = BootClock::now() + start_limit;
  while (!serves()) {
    if (process_->is_over()) throw Unavailable("the ZooKeeper server did not start: " + last_words());
    if (BootClock::now() > deadline) throw Unavailable("the ZooKeeper server does not come to serve");
    stage_.wait(look_again);
  }
}

// Whether it is ours that serves there, and not somebody else's: ours has its data in our folder.
bool Server::serves() const {
  return ask("conf").find(folder()) != std::string::npos && ask("srvr").find("\nMode: ") != std::string::npos;
}

std::string Server::ask(std::string_view word) const {
  const Socket connection;
  const auto address = loopback(port_);
  std::string answer;
  if (connect(connection.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      send(connection.descriptor(), word.data(), word.size(), MSG_NOSIGNAL) < 0)
    return answer;
  pollfd polled{connection.descriptor(), POLLIN, 0};
  std::array<char, 4096> buffer{};
  // It closes behind its answer.
  while (poll(&polled, 1, word_answer_ms) > 0) {
    const auto size = recv(connection.descriptor(), buffer.data(), buffer.size(), 0);
    if (size <= 0) break;
    answer.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return answer;
}

std::int64_t Server::figure(std::string_view name) const {
  const auto answer = ask("mntr");
  const auto line = fmt::format("\nzk_{}\t", name);
  const auto at = answer.find(line);
  if (at == std::string::npos) throw Unavailable(fmt::format("the ZooKeeper server lists no {}", name));
  const auto start = at + line.size();
  const auto number = parse_decimal(answer.substr(start, answer.find_first_of(".\n", start) - start));
  if (!number) throw Unavailable(fmt::format("the ZooKeeper server lists no {}", name));
  return *number;
}

std::string Server::folder() const {
  return fmt::format("{}/zookeeper-{}", stage_.folder(), port_);
}

std::string Server::last_words() const {
  std::ifstream stream{folder() + "/log"};
  std::string last = "no reason given";
  for (std::string line; std::getline(stream, line);) {
    // Of the lines of a stack trace the last cause says it.
    if (line.find("ERROR") != line.npos || line.find("Caused by: ") != line.npos ||
        line.find("Exception: ") != line.npos)
      last = line;
  }
  return last;
}

}  // namespace fenceguard::zookeeper::demos
