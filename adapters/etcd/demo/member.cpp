#include "adapters/etcd/demo/member.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "adapters/etcd/client.hpp"
#include "guard/clock.hpp"
#include "guard/error.hpp"
#include "guard/url.hpp"

namespace fenceguard::etcd::demos {
namespace {

constexpr int attempts_max = 5;
constexpr std::chrono::seconds start_limit{60};
constexpr std::chrono::milliseconds look_again{20};
// Nobody else joins, so nobody needs to know it; the kernel chooses.
constexpr const char* peer_url = "http://127.0.0.1:0";

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

Member::Member(Stage& stage, std::string name) : stage_{stage}, name_{std::move(name)} {
  std::filesystem::create_directory(folder());
  // Somebody may take the port between our look and the member's bind.
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

std::string Member::url() const {
  return fmt::format("etcd://127.0.0.1:{}", port_);
}

Address Member::address() const {
  return address_of(Url::parse(url()));
}

std::int64_t Member::revision() const {
  Client client{address()};
  return client.status(client.address().endpoints.front()).revision;
}

void Member::start() {
  const auto clients = fmt::format("http://127.0.0.1:{}", port_);
  process_ = stage_.start({.program = "etcd",
                           .package = "etcd-server",
                           .arguments = {"--name",
                                         name_,
                                         "--data-dir",
                                         folder() + "/data",
                                         "--listen-client-urls",
                                         clients,
                                         "--advertise-client-urls",
                                         clients,
                                         "--listen-peer-urls",
                                         peer_url,
                                         "--initial-advertise-peer-urls",
                                         peer_url,
                                         "--initial-cluster",
                                         fmt::format("{}={}", name_, peer_url),
                                         "--heartbeat-interval",
                                         "50",
                                         "--election-timeout",
                                         "500",
                                         "--logger",
                                         "zap",
                                         "--log-level",
                                         "error",
                                         "--log-outputs",
                                         folder() + "/log"}});
  const auto deadline = BootClock::now() + start_limit;
  while (!answers()) {
    if (process_->is_over()) throw Unavailable("etcd did not start: " + last_words());
    if (BootClock::now() > deadline) throw Unavailable("etcd does not come to answer");
    stage_.wait(look_again);
  }
}

// Once it has a leader.
bool Member::answers() const {
  try {
    Client client{address()};
    return client.status(client.address().endpoints.front()).leader != 0 && !process_->is_over();
  } catch (const Error&) {
    return false;
  }
}

void Member::save_snapshot() {
  const auto file = folder() + "/snapshot";
  run_etcdctl({fmt::format("--endpoints=http://127.0.0.1:{}", port_), "snapshot", "save", file}, file);
}

void Member::restore_snapshot() {
  process_->kill();
  const auto data = folder() + "/data";
  std::filesystem::remove_all(data);
  run_etcdctl(
      {"snapshot", "restore", folder() + "/snapshot", "--name", name_, "--data-dir", data,
       "--initial-cluster", fmt::format("{}={}", name_, peer_url), "--initial-advertise-peer-urls", peer_url},
      data + "/member/wal");
  start();
}

void Member::run_etcdctl(std::vector<std::string> arguments, const std::string& result) {
  const auto tool = stage_.start({.program = "etcdctl",
                                  .package = "etcd-client",
                                  .arguments = std::move(arguments),
                                  .environment = {{"ETCDCTL_API", "3"}}});
  stage_.wait_until([&] { return tool->is_over(); }, "an end of etcdctl");
  if (!std::filesystem::exists(result)) throw Unavailable("etcdctl did not make " + result);
}

std::string Member::folder() const {
  return fmt::format("{}/etcd-{}", stage_.folder(), name_);
}

std::string Member::last_words() const {
  std::ifstream stream{folder() + "/log"};
  std::string last = "no reason given";
  for (std::string line; std::getline(stream, line);) last = line;
  return last;
}

}  // namespace fenceguard::etcd::demos
