#include "tests/zookeeper/ensemble.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "tests/process/loopback.hpp"

namespace fenceguard::test {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds limit{60};
constexpr std::chrono::milliseconds look_again{20};
constexpr int word_answer_ms = 1'000;
constexpr int starts_max = 5;

// The free ports of one ensemble, all of them taken at once, so that no two are the same.
std::vector<int> free_ports(int count) {
  const std::vector<Loopback> held(static_cast<std::size_t>(count));
  std::vector<int> ports;
  for (const auto& one : held) ports.push_back(one.port());
  return ports;
}

std::map<std::string, std::string> settings_of_all() {
  return {{"tickTime", "100"},
          {"initLimit", "100"},
          {"syncLimit", "30"},
          {"minSessionTimeout", "200"},
          {"maxSessionTimeout", "600000"},
          {"maxClientCnxns", "0"},
          {"clientPortAddress", "127.0.0.1"},
          {"admin.enableServer", "false"},
          {"4lw.commands.whitelist", "*"}};
}

void write_lines(const std::string& file, const std::map<std::string, std::string>& lines) {
  std::ofstream stream{file};
  for (const auto& [name, value] : lines) stream << name << '=' << value << '\n';
  if (!stream.flush()) throw std::runtime_error{"cannot write " + file};
}

// Java as Debian's scripts call it, but quick to start and small.
std::vector<std::string> words_of(const std::string& folder, const std::vector<std::string>& properties) {
  std::vector<std::string> words{
      "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto",
      "-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
      "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dzookeeper.jmx.log4j.disable=true",
      "-Dzookeeper.preAllocSize=1024",
      // Who waits for others to look for a leader asks again soon, not up to a minute later.
      "-Dzookeeper.fastleader.maxNotificationInterval=1000", "-Dznode.container.checkIntervalMs=500"};
  for (const auto& property : properties) words.push_back("-D" + property);
  words.insert(words.end(), {"-cp", "/usr/share/java/slf4j-simple.jar:/usr/share/java/zookeeper.jar",
                             "org.apache.zookeeper.server.quorum.QuorumPeerMain", folder + "/zoo.cfg"});
  return words;
}

}  // namespace

EnsembleNode::EnsembleNode(int port) : port_{port}, process_{{{}, folder_.file("log")}} {
  std::filesystem::create_directory(data());
}

// A server that was killed before it wrote a new log's first bytes does not start beside that empty file,
// which an operator removes then (ZOOKEEPER-2332, mended in 3.9.3).
void EnsembleNode::start() {
  const auto logs = std::filesystem::path{data()} / "version-2";
  std::error_code none_yet;
  for (const auto& file : std::filesystem::directory_iterator{logs, none_yet}) {
    if (file.path().filename().string().starts_with("log.") && file.file_size() == 0)
      std::filesystem::remove(file.path());
  }
  process_.start_only();
}

std::string EnsembleNode::ask(std::string_view word) const {
  const int descriptor = connect_to(port_);
  if (descriptor < 0) return {};
  std::string answer;
  if (send(descriptor, word.data(), word.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(word.size())) {
    pollfd polled{descriptor, POLLIN, 0};
    char buffer[4096];
    // It closes behind its answer. A server that is stopped accepts and says nothing.
    while (poll(&polled, 1, word_answer_ms) > 0) {
      const auto size = recv(descriptor, buffer, sizeof buffer, 0);
      if (size <= 0) break;
      answer.append(buffer, static_cast<std::size_t>(size));
    }
  }
  close(descriptor);
  return answer;
}

bool EnsembleNode::is_serving() const {
  return ask("srvr").find("\nMode: ") != std::string::npos;
}

bool EnsembleNode::is_leader() const {
  const auto answer = ask("srvr");
  return answer.find("\nMode: leader") != std::string::npos ||
         answer.find("\nMode: standalone") != std::string::npos;
}

bool EnsembleNode::has_port() const {
  const auto answer = ask("conf");
  const bool is_told = answer.find("dataDir=") != std::string::npos;  // unless the settings forbid that
  return is_told ? answer.find(data()) != std::string::npos : !answer.empty();
}

bool EnsembleNode::lacks_port() const {
  std::ifstream stream{folder_.file("log")};
  const std::string log{std::istreambuf_iterator<char>{stream}, {}};
  return log.find("BindException") != std::string::npos;
}

Ensemble::Ensemble(int servers, const EnsembleOptions& options) {
  for (int starts = 1;; ++starts) {
    start_nodes(servers, options);
    if (come_to_serve()) return;
    if (starts == starts_max) throw std::runtime_error{"others take the ports of ZooKeeper again and again"};
    nodes_.clear();
  }
}

bool Ensemble::come_to_serve() {
  const auto lack_port = [&] {
    return std::ranges::any_of(nodes_, [](const auto& node) { return node->lacks_port(); });
  };
  for (const auto& one : nodes_) {
    try {
      one->process_.wait_until_up([&] { return (one->is_serving() && one->has_port()) || lack_port(); });
    } catch (const std::runtime_error&) {
      if (!lack_port()) throw;  // it has ended for another reason
    }
    if (lack_port()) return false;
  }
  return true;
}

void Ensemble::start_nodes(int servers, const EnsembleOptions& options) {
  const auto ports = free_ports(servers * 3);
  const auto port = [&](int server, int kind) { return ports[static_cast<std::size_t>(server * 3 + kind)]; };
  auto settings = settings_of_all();
  for (int i = 0; i < servers && servers > 1; ++i)
    settings[fmt::format("server.{}", i + 1)] = fmt::format("127.0.0.1:{}:{}", port(i, 1), port(i, 2));
  for (const auto& [name, value] : options.settings) settings[name] = value;
  for (int i = 0; i < servers; ++i) {
    auto& node = *nodes_.emplace_back(new EnsembleNode{port(i, 0)});
    settings["clientPort"] = std::to_string(node.port());
    settings["dataDir"] = node.data();
    write_lines(node.folder_.file("zoo.cfg"), settings);
    std::ofstream{node.data() + "/myid"} << i + 1;
    node.process_.command().words = words_of(node.folder_.path(), options.properties);
    node.start();
  }
}

std::string Ensemble::url(const std::string& rest) const {
  std::string hosts;
  for (const auto& one : nodes_)
    hosts += fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",", one->port());
  return "zookeeper://" + hosts + rest;
}

EnsembleNode& Ensemble::leader() {
  const auto deadline = steady_clock::now() + limit;
  for (;;) {
    for (const auto& one : nodes_) {
      if (one->is_running() && one->is_leader()) return *one;
    }
    if (steady_clock::now() > deadline) throw std::runtime_error{"the ensemble has no leader"};
    std::this_thread::sleep_for(look_again);
  }
}

void Ensemble::wait_until_serving() {
  for (const auto& one : nodes_) {
    if (one->is_running()) one->process_.wait_until_up([&] { return one->is_serving(); });
  }
}

}  // namespace fenceguard::test
