#pragma once

// ServerProcess: a real server as a child process of a test, which gets no further than the test does: it is
// killed with its owner, and with the test program, whatever ends that.
//
// Not thread-safe.

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fenceguard::test {

class ServerProcess {
 public:
  struct Command {
    std::vector<std::string> words;                  // the program first, found by PATH
    std::string log;                                 // the file that its output is added to
    std::map<std::string, std::string> variables{};  // besides those of the test
  };

  explicit ServerProcess(Command command) : command_{std::move(command)} {}
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Starts it and waits until is_up() says so. Throws std::runtime_error, with the end of its log, where it
  // ends or is not up in time. start_only() does not wait.
  void start(const std::function<bool()>& is_up);
  void start_only();
  void wait_until_up(const std::function<bool()>& is_up);

  // Nothing happens where it does not run. The first two wait for its end, which must come in time.
  void stop();    // SIGTERM
  void kill();    // SIGKILL
  void pause();   // SIGSTOP
  void resume();  // SIGCONT

  [[nodiscard]] bool is_running() const noexcept { return pid_ > 0; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] Command& command() noexcept { return command_; }

 private:
  void wait_for_end();
  [[nodiscard]] bool has_ended();

  Command command_;
  pid_t pid_ = -1;
};

// A port of 127.0.0.1 that nobody listens on now.
[[nodiscard]] int free_port();

// Whether nobody has it, not even for a connection to elsewhere.
[[nodiscard]] bool is_free(int port);

// Whether a TCP server accepts on this port of 127.0.0.1.
[[nodiscard]] bool accepts(int port);

}  // namespace fenceguard::test
