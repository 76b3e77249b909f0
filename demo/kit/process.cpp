#include "demo/kit/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "guard/error.hpp"
#include "server/cli/terminal/sibling_program.hpp"

namespace fenceguard::demo {
namespace {

constexpr std::chrono::milliseconds between_looks{5};

[[noreturn]] void fail(const char* what) {
  throw Unavailable(fmt::format("the demonstration cannot {}: {}", what, std::strerror(errno)));
}

sigset_t interrupting_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  return signals;
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("make a pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    if (read_end >= 0) close(read_end);
    if (write_end >= 0) close(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end = -1;
  int write_end = -1;
};

std::string find_guard() {
  auto file = cli::find_sibling(guard_program);
  if (file.empty())
    throw Unavailable(fmt::format(
        "the program {0} was not found beside the demonstrations; on Debian it is in the package {0}",
        guard_program));
  return file;
}

// As a shell finds it.
std::string find_program(const Command& command) {
  if (command.program == guard_program) return find_guard();
  const char* path = std::getenv("PATH");
  std::string_view folders = path ? path : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const auto end = folders.find(':');
    const auto file = std::filesystem::path{folders.substr(0, end)} / command.program;
    if (access(file.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(file)) return file.string();
    if (end == folders.npos) break;
    folders.remove_prefix(end + 1);
  }
  throw Unavailable(fmt::format(
      "{} was not found on PATH, and this scenario runs a real one; on Debian it is in the package {}",
      command.program, command.package));
}

std::vector<std::string> environment_of(const Command& command) {
  std::vector<std::string> settings;
  for (char** setting = environ; *setting; ++setting) {
    const std::string_view text{*setting};
    const bool is_replaced = command.environment.contains(std::string{text.substr(0, text.find('='))});
    if (!text.starts_with("FENCEGUARD_") && !is_replaced) settings.emplace_back(text);
  }
  for (const auto& [name, value] : command.environment) settings.push_back(name + '=' + value);
  return settings;
}

// As execve takes them.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything that the new process needs, made ready before the fork: after it, nothing may allocate.
struct Launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const char* log_file;  // may be empty
  int input;
  int output;
  pid_t parent;
};

// Runs in the new process, up to the program's start. A group of its own keeps Ctrl-C from reaching it before
// us.
[[noreturn]] void become(const Launch& launch) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launch.parent) _exit(125);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_DFL);
  dup2(launch.input, STDIN_FILENO);
  dup2(launch.output, STDOUT_FILENO);
  const int log = *launch.log_file ? open(launch.log_file, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  if (log >= 0) dup2(log, STDERR_FILENO);
  execve(launch.program, launch.arguments, launch.environment);
  _exit(127);
}

}  // namespace

Interrupts::Interrupts() {
  const auto signals = interrupting_signals();
  std::signal(SIGPIPE, SIG_IGN);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signals_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0) fail("watch for signals");
}

Interrupts::~Interrupts() {
  close(signals_);
  const auto signals = interrupting_signals();
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

bool Interrupts::wait_readable(int descriptor, BootClock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - BootClock::now()).count();
    std::array<pollfd, 2> watched{{{signals_, POLLIN, 0}, {descriptor, POLLIN, 0}}};
    const int ready = poll(watched.data(), watched.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready < 0 && errno != EINTR) fail("wait");
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof info) == sizeof info)
      throw Interruption{static_cast<int>(info.ssi_signo)};
    if (ready > 0 && watched[1].revents != 0) return true;
    if (ready == 0 && left <= 0) return false;
  }
}

TempFolder::TempFolder() {
  const char* parent = std::getenv("TMPDIR");
  path_ = (std::filesystem::path{parent && *parent ? parent : "/tmp"} / "fenceguard-demo-XXXXXX").string();
  if (!mkdtemp(path_.data())) fail("make a temporary folder");
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Process::Process(Interrupts& interrupts, Command command)
    : interrupts_{interrupts},
      name_{command.program.empty() || command.program == guard_program ? command.arguments.at(0)
                                                                        : command.program} {
  const auto program = command.program.empty() ? "/proc/self/exe" : find_program(command);
  command.arguments.insert(command.arguments.begin(), command.program.empty() ? "fenceguard-demo" : program);
  auto settings = environment_of(command);
  const auto arguments = pointers_to(command.arguments);
  const auto environment = pointers_to(settings);
  Pipe input;
  Pipe output;
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) fail("start a process");
  if (pid_ == 0)
    become({program.c_str(), arguments.data(), environment.data(), command.log_file.c_str(), input.read_end,
            output.write_end, parent});
  to_child_ = std::exchange(input.write_end, -1);
  from_child_ = std::exchange(output.read_end, -1);
}

Process::~Process() {
  Process::kill();
  close(to_child_);
  close(from_child_);
}

void Process::send_line(const std::string& line) {
  // A line is shorter than a pipe holds, also when the child is stopped.
  const auto text = line + '\n';
  if (write(to_child_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw Unavailable(fmt::format("the process '{}' does not listen", name_));
}

std::string Process::receive_line() {
  const auto deadline = BootClock::now() + limit;
  while (true) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      auto line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    if (!read_more(deadline)) throw Unavailable(fmt::format("the process '{}' ended too early", name_));
  }
}

bool Process::read_more(BootClock::time_point deadline) {
  if (!interrupts_.wait_readable(from_child_, deadline))
    throw Unavailable(fmt::format("the process '{}' said nothing for {} s", name_, limit.count()));
  std::array<char, 4096> buffer;
  const auto count = read(from_child_, buffer.data(), buffer.size());
  if (count > 0) received_.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

void Process::pause() {
  ::kill(pid_, SIGSTOP);
  while (waitpid(pid_, &status_, WUNTRACED) < 0) {
    if (errno != EINTR) fail("stop a process");
  }
  if (WIFSTOPPED(status_)) return;
  pid_ = -1;
  throw Unavailable(fmt::format("the process '{}' ended too early", name_));
}

void Process::resume() {
  ::kill(pid_, SIGCONT);
}

void Process::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

bool Process::is_over() {
  if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
  return pid_ <= 0;
}

bool Process::is_over_in_time() {
  const auto deadline = BootClock::now() + limit;
  while (!is_over()) {
    if (BootClock::now() > deadline) return false;
    interrupts_.wait_readable(-1, BootClock::now() + between_looks);
  }
  return true;
}

void Process::end() {
  if (pid_ > 0) ::kill(pid_, SIGTERM);
  if (!is_over_in_time()) kill();
}

int Process::wait() {
  if (!is_over_in_time())
    throw Unavailable(fmt::format("the process '{}' did not end in {} s", name_, limit.count()));
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

}  // namespace fenceguard::demo
