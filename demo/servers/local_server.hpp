#pragma once

// LocalServer: a real server of a demonstration, on a free port of 127.0.0.1, with its data in the harness's
// folder. Dies with its owner.
//
// Not thread-safe.

#include "demo/kit/harness.hpp"

namespace fenceguard::demo {

class LocalServer {
 public:
  virtual ~LocalServer() = default;
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::string host() const { return "127.0.0.1:" + std::to_string(port_); }

  void pause() { process_->pause(); }    // SIGSTOP
  void resume() { process_->resume(); }  // SIGCONT
  void kill() { process_->kill(); }      // SIGKILL
  // SIGKILL, and again on the same port, with what is on its disk.
  void restart();

 protected:
  // product: for messages and the name of its folder. REQUIRES: the harness outlives it.
  LocalServer(Harness& harness, std::string product) : harness_{harness}, product_{std::move(product)} {}

  // Finds a port and starts; for the constructors of derived classes. Throws Unavailable.
  void open();
  // Starts on the present port and returns when it serves.
  void start();

  [[nodiscard]] virtual Command command() = 0;
  // Whether it is this very server that serves at the port. May throw what makes a 'no'.
  [[nodiscard]] virtual bool serves() = 0;
  // Whether this line of its log says why it ended.
  [[nodiscard]] virtual bool is_reason(const std::string& line) const = 0;

  [[nodiscard]] Harness& harness() noexcept { return harness_; }
  [[nodiscard]] int pid() const { return process_->pid(); }
  [[nodiscard]] std::string folder() const;
  [[nodiscard]] std::string log_file() const { return folder() + "/log"; }

 private:
  [[nodiscard]] std::string last_words() const;

  Harness& harness_;
  std::string product_;
  int port_ = 0;
  std::unique_ptr<Process> process_;
};

}  // namespace fenceguard::demo
