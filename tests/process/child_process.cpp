#include "tests/process/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

extern char** environ;

namespace fenceguard::test {

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments) {
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0)
    throw std::runtime_error{"pipe2 failed"};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int result = posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  input_ = to_child[1];
  output_ = from_child[0];
  if (result != 0) throw std::runtime_error{"cannot start " + program};
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    wait();
  }
  close_input();
  close(output_);
}

bool ChildProcess::fill(std::chrono::milliseconds limit) {
  pollfd ready{output_, POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(limit.count())) <= 0)
    throw std::runtime_error{"the child process said nothing in time"};
  char bytes[65536];
  const auto count = read(output_, bytes, sizeof bytes);
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<std::size_t>(count));
  return true;
}

std::optional<std::string> ChildProcess::read_line(std::chrono::milliseconds limit) {
  for (;;) {
    const auto end = buffer_.find('\n');
    if (end != std::string::npos) {
      auto line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (!fill(limit)) return std::nullopt;
  }
}

std::vector<std::string> ChildProcess::read_rest() {
  while (fill(patience)) {
  }
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n', begin)) {
    lines.push_back(buffer_.substr(begin, end - begin));
    begin = end + 1;
  }
  buffer_.clear();  // a line without an end was never said in full
  return lines;
}

void ChildProcess::close_input() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

void ChildProcess::signal(int number) {
  kill(pid_, number);
}

int ChildProcess::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

}  // namespace fenceguard::test
