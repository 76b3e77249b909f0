#pragma once

// Server: a real redis-server of a demonstration, on a free port of 127.0.0.1, without data on disk. Dies
// with its owner.
//
// Not thread-safe.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "adapters/redis/connection.hpp"
#include "guard/demonstration.hpp"

namespace fenceguard::redis::demos {

class Server {
 public:
  // options: further words of its command line. Throws Unavailable where it cannot be started. REQUIRES: the
  // stage outlives it.
  explicit Server(Stage& stage, std::vector<std::string> options = {},
                  std::map<std::string, std::string> environment = {});

  [[nodiscard]] int port() const noexcept { return port_; }
  // redis://127.0.0.1:PORT, with time-outs short enough for a story.
  [[nodiscard]] std::string url() const;
  [[nodiscard]] Address address() const;

  // One command on a connection of its own.
  [[nodiscard]] Reply call(const std::vector<std::string>& words) const;
  // The value of a line of INFO; empty if there is none.
  [[nodiscard]] std::string info(const std::string& section, const std::string& name) const;

  void pause() { process_->pause(); }    // SIGSTOP
  void resume() { process_->resume(); }  // SIGCONT
  void kill() { process_->kill(); }      // SIGKILL
  // Again, on the same port: empty, unless its options say that it keeps its data.
  void restart();
  // As after its disk was replaced. REQUIRES: it was killed.
  void lose_data();

 private:
  void start();
  [[nodiscard]] bool answers() const;
  [[nodiscard]] std::string folder() const;
  [[nodiscard]] std::string log_file() const;
  [[nodiscard]] std::string last_words() const;

  Stage& stage_;
  std::vector<std::string> options_;
  std::map<std::string, std::string> environment_;
  int port_ = 0;
  std::unique_ptr<StageProcess> process_;
};

}  // namespace fenceguard::redis::demos
