#pragma once

// EtcdCluster: real etcd members of one cluster for tests, on free ports of 127.0.0.1, with their data in a
// temporary folder in memory; gone with their owner, and with the test program, whatever ends that.
//
// Not thread-safe, but url(), port() and the like may be read by any thread.

#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/temp_dir.hpp"
#include "tests/process/server_process.hpp"

namespace fenceguard::test {

class EtcdCluster {
 public:
  struct Options {
    std::vector<std::string> arguments{};  // further words of each member's command line
    bool tls = false;                // clients must speak TLS, and show a certificate of ca_file()'s issuer
    bool client_certificate = true;  // with tls: false lets clients in that show none
  };

  class Member {
   public:
    [[nodiscard]] int port() const noexcept { return client_port_; }
    [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

    // On the same ports and with the same data. Does not wait: see EtcdCluster::wait_until_serving().
    void start() { process_.start_only(); }
    void stop() { process_.stop(); }  // SIGTERM; a leader hands over
    void kill() { process_.kill(); }  // SIGKILL
    void pause();                     // SIGSTOP; returns once it stands still
    void resume();                    // SIGCONT

    [[nodiscard]] bool is_running() const noexcept { return process_.is_running() && !is_paused_; }

   private:
    friend class EtcdCluster;
    struct Ports {
      int client;
      int peer;
      int metrics;
    };
    Member(std::string name, std::string folder, const Ports& ports);
    // What it says at PATH of its metrics' port; '' where there is no answer.
    [[nodiscard]] std::string ask(const std::string& path) const;
    // Whether it says that somebody else has one of its ports.
    [[nodiscard]] bool lacks_port() const;

    std::string name_;
    std::string folder_;
    int client_port_;
    int peer_port_;
    int metrics_port_;
    bool is_paused_ = false;
    ServerProcess process_;
  };

  // Returns once it serves. Throws std::runtime_error where it does not start.
  explicit EtcdCluster(int members = 3) : EtcdCluster(members, Options{}) {}
  EtcdCluster(int members, Options options);

  // etcd://127.0.0.1:P1,127.0.0.1:P2,... and rest: "/prefix?timeout=1s". credentials: "user:password@".
  // With tls the parameters for it are the caller's: see tls_parameters().
  [[nodiscard]] std::string url(const std::string& rest = "", const std::string& credentials = "") const;
  // One member alone, or whatever else listens on a port.
  [[nodiscard]] std::string url_of_port(int port, const std::string& rest = "") const;

  [[nodiscard]] Member& member(std::size_t index) { return *members_.at(index); }
  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }

  // The member that leads among those that run; waits until there is exactly one.
  [[nodiscard]] std::size_t leader() const;
  // Until every member that runs, and is not paused, answers a read that a majority confirmed.
  void wait_until_serving() const;

  // Saves the state of the cluster, and takes all members back to such a state, on the same ports.
  void save_snapshot(const std::string& file);
  void restore_snapshot(const std::string& file);

  // etcdctl with the cluster's endpoints and certificates; answers what it printed. Throws
  // std::runtime_error, with that, where it fails.
  std::string etcdctl(const std::string& words) const;

  // Switches authentication on: user, and root with the same password. user may do everything, or, if there
  // is a prefix, everything below it.
  void enable_auth(const std::string& user, const std::string& password, const std::string& prefix = "");

  // With tls: "cacert=FILE&cert=FILE&key=FILE".
  [[nodiscard]] std::string tls_parameters() const;
  [[nodiscard]] std::string ca_file() const { return folder_.file("ca.crt"); }
  [[nodiscard]] std::string cert_file() const { return folder_.file("client.crt"); }
  [[nodiscard]] std::string key_file() const { return folder_.file("client.key"); }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_.path(); }

 private:
  void make_certificates();
  void start_members(int count);
  // False where another process took one of the ports before it was listened on.
  [[nodiscard]] bool comes_to_serve() const;
  [[nodiscard]] bool is_serving() const;
  [[nodiscard]] std::string endpoint(const Member& member) const;
  std::string etcdctl_at(const std::string& endpoints, const std::string& words) const;
  [[nodiscard]] std::string initial_cluster() const;
  [[nodiscard]] std::vector<std::string> words_of(const Member& member) const;

  Options options_;
  TempDir folder_{TempDir::Place::memory};
  std::vector<std::unique_ptr<Member>> members_;
  std::string credentials_;  // for etcdctl, once authentication is on
};

}  // namespace fenceguard::test
