#pragma once

// ChildProcess: another process of the product's (its child.cpp, named by fenceguard_test_child() in CMake),
// with its standard input and output as pipes. Killed when the object goes.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace fenceguard::test {

class ChildProcess {
 public:
  static constexpr std::chrono::seconds patience{30};

  ChildProcess(const std::string& program, const std::vector<std::string>& arguments);
#ifdef FENCEGUARD_TEST_CHILD
  explicit ChildProcess(const std::vector<std::string>& arguments)
      : ChildProcess{FENCEGUARD_TEST_CHILD, arguments} {}
#endif
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line that the child wrote; nothing at its end. Throws if none comes in time.
  [[nodiscard]] std::optional<std::string> read_line(std::chrono::milliseconds wait_max = patience);
  // All lines up to the child's end.
  [[nodiscard]] std::vector<std::string> read_rest();
  // Ends the child's input, upon which it ends.
  void close_input();
  void signal(int number);
  // Waits for the end; the status as waitpid(2) gives it.
  int wait();

 private:
  bool fill(std::chrono::milliseconds limit);

  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string buffer_;
};

}  // namespace fenceguard::test
