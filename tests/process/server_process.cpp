#include "tests/process/server_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/process/loopback.hpp"

namespace fenceguard::test {
namespace {

constexpr std::chrono::seconds limit{60};
constexpr std::chrono::milliseconds look_again{5};

std::string last_lines(const std::string& file) {
  std::ifstream stream{file};
  std::stringstream text;
  text << stream.rdbuf();
  const auto all = text.str();
  return all.substr(all.size() > 3000 ? all.size() - 3000 : 0);
}

}  // namespace

ServerProcess::~ServerProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ServerProcess::start(const std::function<bool()>& is_up) {
  start_only();
  wait_until_up(is_up);
}

void ServerProcess::start_only() {
  std::vector<char*> arguments;
  for (auto& word : command_.words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> settings;
  for (char** one = environ; *one != nullptr; ++one) settings.emplace_back(*one);
  for (const auto& [name, value] : command_.variables) settings.push_back(name + "=" + value);
  std::vector<char*> variables;
  for (auto& setting : settings) variables.push_back(setting.data());
  variables.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error{"fork failed"};
  if (pid_ > 0) return;
  // Also where the test program is killed, and where it was before this line.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int log = open(command_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execvpe(arguments[0], arguments.data(), variables.data());
  _exit(127);
}

void ServerProcess::wait_until_up(const std::function<bool()>& is_up) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!is_up()) {
    if (has_ended())
      throw std::runtime_error{command_.words.front() + " did not start: " + last_lines(command_.log)};
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error{command_.words.front() + " does not answer: " + last_lines(command_.log)};
    std::this_thread::sleep_for(look_again);
  }
}

bool ServerProcess::has_ended() {
  if (pid_ <= 0) return true;
  if (waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
  pid_ = -1;
  return true;
}

void ServerProcess::wait_for_end() {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!has_ended()) {
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error{command_.words.front() + " does not end: " + last_lines(command_.log)};
    std::this_thread::sleep_for(look_again);
  }
}

void ServerProcess::stop() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGTERM);
  wait_for_end();
}

void ServerProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  wait_for_end();
}

void ServerProcess::pause() {
  if (pid_ > 0) ::kill(pid_, SIGSTOP);
}

void ServerProcess::resume() {
  if (pid_ > 0) ::kill(pid_, SIGCONT);
}

int free_port() {
  const Loopback listener;
  return listener.port();
}

bool is_free(int port) {
  try {
    const Loopback bound{port};
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

bool accepts(int port) {
  const int descriptor = connect_to(port);
  if (descriptor < 0) return false;
  close(descriptor);
  return true;
}

}  // namespace fenceguard::test
