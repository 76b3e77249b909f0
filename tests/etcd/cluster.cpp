#include "tests/etcd/cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "tests/process/loopback.hpp"

namespace fenceguard::test {
namespace {

constexpr std::chrono::seconds limit{60};
constexpr std::chrono::milliseconds look_again{20};
constexpr int starts_max = 5;

template <class Condition>
void wait_until(const char* what, const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error{fmt::format("no {}", what)};
    std::this_thread::sleep_for(look_again);
  }
}

// Runs a line of shell and answers its output. Throws std::runtime_error with it where it fails.
std::string run(const std::string& line) {
  FILE* pipe = popen((line + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error{"no shell"};
  std::string output;
  char piece[4096];
  for (std::size_t count = 0; (count = fread(piece, 1, sizeof piece, pipe)) > 0;) output.append(piece, count);
  if (pclose(pipe) != 0) throw std::runtime_error{fmt::format("{}: {}", line, output)};
  return output;
}

// Whether all threads of a process are stopped (proc(5): the state is the first field after the name).
bool stands_still(pid_t pid) {
  for (const auto& task : std::filesystem::directory_iterator{fmt::format("/proc/{}/task", pid)}) {
    std::ifstream stream{task.path() / "stat"};
    const std::string stat{std::istreambuf_iterator<char>{stream}, {}};
    const auto name_end = stat.rfind(')');
    if (name_end == stat.npos || stat.compare(name_end, 3, ") T") != 0) return false;
  }
  return true;
}

}  // namespace

EtcdCluster::Member::Member(std::string name, std::string folder, const Ports& ports)
    : name_{std::move(name)},
      folder_{std::move(folder)},
      client_port_{ports.client},
      peer_port_{ports.peer},
      metrics_port_{ports.metrics},
      process_{{{}, folder_ + ".log"}} {}

bool EtcdCluster::Member::lacks_port() const {
  std::ifstream stream{folder_ + ".log"};
  const std::string log{std::istreambuf_iterator<char>{stream}, {}};
  return log.find("address already in use") != std::string::npos;
}

void EtcdCluster::Member::pause() {
  process_.pause();
  is_paused_ = true;
  // The signal stops a process with many threads one after the other.
  wait_until("member that stands still", [this] { return stands_still(process_.pid()); });
}

void EtcdCluster::Member::resume() {
  process_.resume();
  is_paused_ = false;
}

std::string EtcdCluster::Member::ask(const std::string& path) const {
  const int descriptor = connect_to(metrics_port_);
  if (descriptor < 0) return {};
  const timeval patience{2, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto request = fmt::format("GET {} HTTP/1.0\r\nHost: localhost\r\n\r\n", path);
  std::string answer;
  if (write(descriptor, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
    char piece[4096];
    for (ssize_t count = 0; (count = read(descriptor, piece, sizeof piece)) > 0;)
      answer.append(piece, static_cast<std::size_t>(count));
  }
  close(descriptor);
  return answer;
}

EtcdCluster::EtcdCluster(int members, Options options) : options_{std::move(options)} {
  if (options_.tls) make_certificates();
  for (int starts = 1;; ++starts) {
    start_members(members);
    if (comes_to_serve()) return;
    if (starts == starts_max) throw std::runtime_error{"others take the ports of etcd again and again"};
    for (const auto& member : members_) {
      member->kill();
      std::filesystem::remove_all(member->folder_);
      std::filesystem::remove(member->folder_ + ".log");
    }
    members_.clear();
  }
}

void EtcdCluster::start_members(int count) {
  {
    // All ports are taken at once, so that no two are the same.
    const std::vector<Loopback> held(static_cast<std::size_t>(count) * 3);
    for (std::size_t i = 0; i < held.size(); i += 3) {
      const auto name = fmt::format("m{}", i / 3);
      const Member::Ports ports{held[i].port(), held[i + 1].port(), held[i + 2].port()};
      members_.push_back(std::unique_ptr<Member>{new Member{name, folder_.file(name), ports}});
    }
  }
  for (const auto& member : members_) {
    member->process_.command().words = words_of(*member);
    member->start();
  }
}

std::string EtcdCluster::initial_cluster() const {
  std::vector<std::string> peers;
  for (const auto& member : members_)
    peers.push_back(fmt::format("{}=http://127.0.0.1:{}", member->name_, member->peer_port_));
  return fmt::format("{}", fmt::join(peers, ","));
}

std::vector<std::string> EtcdCluster::words_of(const Member& member) const {
  const auto client = endpoint(member);
  const auto peer = fmt::format("http://127.0.0.1:{}", member.peer_port_);
  const auto metrics = fmt::format("http://127.0.0.1:{}", member.metrics_port_);
  std::vector<std::string> words{"etcd", "--name", member.name_, "--data-dir", member.folder_};
  const auto add = [&](std::initializer_list<std::string> more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add({"--listen-client-urls", client, "--advertise-client-urls", client});
  add({"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer});
  add({"--initial-cluster", initial_cluster(), "--listen-metrics-urls", metrics});
  add({"--heartbeat-interval", "50", "--election-timeout", "500"});
  add({"--logger", "zap", "--log-outputs", "stderr", "--log-level", "error"});
  if (options_.tls) {
    add({"--cert-file", folder_.file("server.crt"), "--key-file", folder_.file("server.key")});
    add({"--trusted-ca-file", ca_file()});
    if (options_.client_certificate) add({"--client-cert-auth"});
  }
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  return words;
}

std::string EtcdCluster::url(const std::string& rest, const std::string& credentials) const {
  std::vector<std::string> hosts;
  for (const auto& member : members_) hosts.push_back(fmt::format("127.0.0.1:{}", member->client_port_));
  return fmt::format("etcd://{}{}{}", credentials, fmt::join(hosts, ","), rest);
}

std::string EtcdCluster::url_of_port(int port, const std::string& rest) const {
  return fmt::format("etcd://127.0.0.1:{}{}", port, rest);
}

std::size_t EtcdCluster::leader() const {
  std::size_t found = 0;
  wait_until("leader", [&] {
    int leaders = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (!members_[i]->is_running()) continue;
      if (members_[i]->ask("/metrics").find("\netcd_server_is_leader 1\n") == std::string::npos) continue;
      found = i;
      ++leaders;
    }
    return leaders == 1;
  });
  return found;
}

bool EtcdCluster::comes_to_serve() const {
  bool lacks_port = false;
  wait_until("etcd that serves", [&] {
    lacks_port = std::ranges::any_of(members_, [](const auto& member) { return member->lacks_port(); });
    return lacks_port || is_serving();
  });
  return !lacks_port;
}

bool EtcdCluster::is_serving() const {
  return std::ranges::all_of(members_, [](const auto& member) {
    return !member->is_running() || (accepts(member->client_port_) &&
                                     member->ask("/health").find("\"health\":\"true\"") != std::string::npos);
  });
}

void EtcdCluster::wait_until_serving() const {
  wait_until("etcd that serves", [this] { return is_serving(); });
}

std::string EtcdCluster::endpoint(const Member& member) const {
  return fmt::format("{}://127.0.0.1:{}", options_.tls ? "https" : "http", member.client_port_);
}

std::string EtcdCluster::etcdctl(const std::string& words) const {
  std::vector<std::string> endpoints;
  for (const auto& member : members_) {
    if (member->is_running()) endpoints.push_back(endpoint(*member));
  }
  return etcdctl_at(fmt::format("{}", fmt::join(endpoints, ",")), words);
}

std::string EtcdCluster::etcdctl_at(const std::string& endpoints, const std::string& words) const {
  auto line = "ETCDCTL_API=3 etcdctl --dial-timeout=30s --command-timeout=60s --endpoints=" + endpoints;
  if (options_.tls)
    line += fmt::format(" --cacert={} --cert={} --key={}", ca_file(), cert_file(), key_file());
  if (!credentials_.empty()) line += fmt::format(" --user='{}'", credentials_);
  return run(line + " " + words);
}

void EtcdCluster::save_snapshot(const std::string& file) {
  // etcdctl saves the state of one member.
  etcdctl_at(endpoint(*members_.at(leader())), "snapshot save " + file);
}

void EtcdCluster::restore_snapshot(const std::string& file) {
  for (const auto& member : members_) {
    member->resume();
    member->kill();
    std::filesystem::remove_all(member->folder_);
    run(
        fmt::format("ETCDCTL_API=3 etcdctl snapshot restore {} --name {} --data-dir {} --initial-cluster {} "
                    "--initial-advertise-peer-urls http://127.0.0.1:{}",
                    file, member->name_, member->folder_, initial_cluster(), member->peer_port_));
  }
  for (const auto& member : members_) member->start();
  wait_until_serving();
}

void EtcdCluster::enable_auth(const std::string& user, const std::string& password,
                              const std::string& prefix) {
  etcdctl(fmt::format("user add 'root:{}'", password));
  etcdctl("user grant-role root root");
  if (user != "root") {
    etcdctl(fmt::format("user add '{}:{}'", user, password));
    if (prefix.empty()) {
      etcdctl(fmt::format("user grant-role {} root", user));
    } else {
      etcdctl("role add ours");
      etcdctl(fmt::format("role grant-permission ours readwrite {} --prefix", prefix));
      etcdctl(fmt::format("user grant-role {} ours", user));
    }
  }
  etcdctl("auth enable");
  credentials_ = "root:" + password;
}

std::string EtcdCluster::tls_parameters() const {
  return fmt::format("cacert={}&cert={}&key={}", ca_file(), cert_file(), key_file());
}

void EtcdCluster::make_certificates() {
  const auto& folder = folder_.path();
  const auto key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -batch";
  run(fmt::format("openssl req -x509 {} -subj /CN=ca -days 2 -keyout {}/ca.key -out {}/ca.crt", key, folder,
                  folder));
  const auto sign = [&](const std::string& name, const std::string& names) {
    const auto file = folder_.file(name);
    run(fmt::format("openssl req {} -subj /CN={} -keyout {}.key -out {}.csr", key, name, file, file));
    run(fmt::format("echo subjectAltName={} > {}.ext", names, file));
    run(
        fmt::format("openssl x509 -req -in {}.csr -CA {}/ca.crt -CAkey {}/ca.key -CAcreateserial -days 2 "
                    "-extfile {}.ext -out {}.crt",
                    file, folder, folder, file, file));
  };
  sign("server", "IP:127.0.0.1,DNS:etcd.test");
  sign("client", "DNS:client.test");
}

}  // namespace fenceguard::test
