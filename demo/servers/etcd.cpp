#include "demo/servers/etcd.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "adapters/etcd/address.hpp"
#include "adapters/etcd/client.hpp"
#include "guard/error.hpp"
#include "guard/source/url.hpp"

namespace fenceguard::demo {
namespace {

// No other member joins, so none needs to know it; the kernel chooses.
const std::string peer_url = "http://127.0.0.1:0";
const std::string cluster = "member=" + peer_url;

auto status_of(const std::string& url) {
  etcd::Client client{url};
  return client.status(client.address().endpoints.front());
}

}  // namespace

EtcdServer::EtcdServer(Harness& harness) : LocalServer{harness, "etcd"} {
  open();
}

std::int64_t EtcdServer::revision() const {
  return status_of(url()).revision;
}

Command EtcdServer::command() {
  const auto clients = "http://" + host();
  return {.program = "etcd",
          .package = "etcd-server",
          .arguments = {"--name=member", "--data-dir=" + folder() + "/data",
                        "--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
                        "--listen-peer-urls=" + peer_url, "--initial-advertise-peer-urls=" + peer_url,
                        "--initial-cluster=" + cluster, "--heartbeat-interval=50", "--election-timeout=500",
                        "--logger=zap", "--log-level=error", "--log-outputs=" + log_file()}};
}

// Once it has a leader.
bool EtcdServer::serves() {
  return status_of(url()).leader != 0;
}

void EtcdServer::save_snapshot() {
  const auto file = folder() + "/snapshot";
  run_etcdctl({"--endpoints=http://" + host(), "snapshot", "save", file}, file);
}

void EtcdServer::restore_snapshot() {
  kill();
  const auto data = folder() + "/data";
  std::filesystem::remove_all(data);
  run_etcdctl({"snapshot", "restore", folder() + "/snapshot", "--name", "member", "--data-dir", data,
               "--initial-cluster", cluster, "--initial-advertise-peer-urls", peer_url},
              data + "/member/wal");
  start();
}

void EtcdServer::run_etcdctl(std::vector<std::string> arguments, const std::string& result) {
  const auto tool = harness().start({.program = "etcdctl",
                                     .package = "etcd-client",
                                     .arguments = std::move(arguments),
                                     .environment = {{"ETCDCTL_API", "3"}}});
  if (tool->wait() != 0 || !std::filesystem::exists(result))
    throw Unavailable("etcdctl did not make " + result);
}

}  // namespace fenceguard::demo
