#pragma once

// Ensemble: real ZooKeeper servers for tests, in temporary folders, on free ports, gone with their owner (and
// with the test program, whatever ends it). A start takes seconds: where a test breaks nothing on purpose,
// its program shares one ensemble, and each test uses a ROOT of its own.
//
// A tick is 100 ms, so a session may be as short as 200 ms; a follower gives a silent leader up after 3 s.
//
// Not thread-safe, but port(), url() and the like may be read by any thread.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/temp_dir.hpp"
#include "tests/process/server_process.hpp"

namespace fenceguard::test {

struct EnsembleOptions {
  std::map<std::string, std::string> settings{};  // lines of zoo.cfg, besides or instead of ours
  std::vector<std::string> properties{};          // of the Java system: "zookeeper.skipACL=yes"
};

// One server. All calls but the four-letter words are as those of ServerProcess.
class EnsembleNode {
 public:
  [[nodiscard]] int port() const noexcept { return port_; }
  // Where its snapshots and its log lie: copied while it is stopped and put back, it is a restored backup.
  [[nodiscard]] std::string data() const { return folder_.file("data"); }
  [[nodiscard]] bool is_running() const noexcept { return process_.is_running(); }

  void start();  // see Ensemble::wait_until_serving()
  void stop() { process_.stop(); }
  void kill() { process_.kill(); }
  void pause() { process_.pause(); }
  void resume() { process_.resume(); }

  // What it answers to a four-letter word; empty if nothing within a second.
  [[nodiscard]] std::string ask(std::string_view word) const;
  [[nodiscard]] bool is_serving() const;
  [[nodiscard]] bool is_leader() const;  // also of a server alone

 private:
  friend class Ensemble;
  explicit EnsembleNode(int port);
  // Whether it is this one, and no other test's, that answers at its port.
  [[nodiscard]] bool has_port() const;
  // Whether it says that somebody else has one of its ports.
  [[nodiscard]] bool lacks_port() const;

  int port_;
  TempDir folder_{TempDir::Place::memory};
  ServerProcess process_;
};

class Ensemble {
 public:
  // Starts them, and returns once all of them serve. One server is a server alone.
  explicit Ensemble(int servers = 3, const EnsembleOptions& options = {});

  // zookeeper://127.0.0.1:P1,127.0.0.1:P2,... and rest: "/app?acl=read".
  [[nodiscard]] std::string url(const std::string& rest = "") const;

  [[nodiscard]] EnsembleNode& node(std::size_t index) { return *nodes_.at(index); }
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }

  // The one that leads, waiting for an election's end. Throws std::runtime_error where there is none.
  [[nodiscard]] EnsembleNode& leader();

  // Returns once every server that runs serves. Throws std::runtime_error where it does not come to that.
  void wait_until_serving();

 private:
  void start_nodes(int servers, const EnsembleOptions& options);
  // False where another process took one of the ports before it was listened on.
  [[nodiscard]] bool come_to_serve();

  std::vector<std::unique_ptr<EnsembleNode>> nodes_;
};

}  // namespace fenceguard::test
