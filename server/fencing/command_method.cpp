#include "server/fencing/command_method.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "guard/error.hpp"
#include "guard/support/descriptor.hpp"

namespace fenceguard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t output_bytes_max = 2'048;
constexpr milliseconds look{50};          // at whether the run is to end
constexpr milliseconds end_after{2'000};  // of a process that SIGKILL does not end at once

std::string reason() {
  return std::generic_category().message(errno);
}

// In a process that is a copy of one with several threads: calls of the system alone. Leads a process group,
// and kills it, with itself, when parent dies.
[[noreturn]] void keep_group(pid_t parent) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // The state's lock, above all: it is ours for as long as one process has it open.
  ::syscall(SYS_close_range, 0U, UINT_MAX, 0U);
  // What else sends a signal, such as the command to its group, says nothing of the parent.
  while (::getppid() == parent) ::sigwaitinfo(&all, nullptr);
  ::kill(0, SIGKILL);
  ::_exit(0);
}

// The process group of a command, which does not outlive this process even where that is killed: of the
// command's own children no signal of the parent's death (PR_SET_PDEATHSIG) would come to any.
class Group {
 public:
  Group() {
    const pid_t parent = ::getpid();
    keeper_ = ::fork();
    if (keeper_ == 0) keep_group(parent);
    if (keeper_ < 0) throw Unavailable("cannot fork: " + reason());
    ::setpgid(keeper_, keeper_);  // in both processes, because either may be the first to need it
  }
  // Of the group its keeper alone.
  ~Group() {
    ::kill(keeper_, SIGKILL);
    ::waitpid(keeper_, nullptr, 0);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] pid_t number() const noexcept { return keeper_; }
  void kill() const { ::kill(-keeper_, SIGKILL); }

 private:
  pid_t keeper_ = 0;
};

struct Program {
  const char* path;
  char* const* environment;
  int output;
};

// In the command's process, likewise.
[[noreturn]] void become(const Program& program, pid_t group, pid_t parent) {
  if (::setpgid(0, group) != 0) ::_exit(127);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &usual, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(program.output, STDOUT_FILENO);
  ::dup2(program.output, STDERR_FILENO);
  if (::syscall(SYS_close_range, 3U, UINT_MAX, 0U) != 0) ::_exit(127);
  std::array<char*, 2> words{const_cast<char*>(program.path), nullptr};
  ::execve(program.path, words.data(), program.environment);
  ::_exit(errno == ENOENT ? 127 : 126);
}

// One run of the program.
class Run {
 public:
  Run(const std::string& path, const TakeOver& take_over) {
    std::vector<std::string> variables{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                       "FENCING_RESOURCE=" + take_over.resource,
                                       fmt::format("FENCING_OLD_TOKEN={}", take_over.old_token),
                                       fmt::format("FENCING_NEW_TOKEN={}", take_over.new_token)};
    std::vector<char*> environment;
    for (auto& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Unavailable("no pipe: " + reason());
    output_.emplace(ends[0]);
    const Descriptor write_end{ends[1]};
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ == 0) become({path.c_str(), environment.data(), ends[1]}, group_.number(), parent);
    if (process_ < 0) throw Unavailable("cannot fork: " + reason());
    ::setpgid(process_, group_.number());
    ended_.emplace(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0U)));
    ::fcntl(output_->number(), F_SETFL, O_NONBLOCK);
  }
  ~Run() {
    if (process_ > 0) kill();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Its wait status; nothing where it did not end until then.
  std::optional<int> wait(steady_clock::time_point deadline, const std::stop_token& stop) {
    while (process_ > 0 && !stop.stop_requested()) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
      if (left <= milliseconds{0}) return std::nullopt;
      std::array<pollfd, 2> ready{{{output_->number(), POLLIN, 0}, {ended_->number(), POLLIN, 0}}};
      ::poll(ready.data(), ready.size(), static_cast<int>(std::min(left, look).count()));
      read();
      if (const auto status = reap()) return status;
    }
    return std::nullopt;
  }

  void kill() {
    group_.kill();
    if (process_ > 0) ::kill(process_, SIGKILL);  // it may have left its group (setsid)
    pollfd ended{ended_->number(), POLLIN, 0};
    ::poll(&ended, 1, static_cast<int>(end_after.count()));
    (void)reap();
  }

  [[nodiscard]] const std::string& said() const noexcept { return said_; }

 private:
  // What is there, up to a bound, so that a program that prints without end does not keep us here.
  void read() {
    std::array<char, 65'536> part{};
    for (int parts = 0; parts < 16 && output_->number() >= 0; ++parts) {
      const auto count = ::read(output_->number(), part.data(), part.size());
      if (count < 0) return;
      if (count == 0) return output_->close();
      said_.append(part.data(), std::min(static_cast<std::size_t>(count), output_bytes_max - said_.size()));
    }
  }

  std::optional<int> reap() {
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
    process_ = 0;
    read();
    return status;
  }

  const Group group_;
  pid_t process_ = 0;  // 0: it has ended
  std::optional<Descriptor> output_;
  std::optional<Descriptor> ended_;
  std::string said_;
};

FenceResult result_of(int status, const std::string& said) {
  const auto what = said.empty() ? std::string{} : ": " + printable(said);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {FenceResult::Outcome::success, printable(said)};
  if (WIFSIGNALED(status))
    return {FenceResult::Outcome::failure, fmt::format("it died of signal {}{}", WTERMSIG(status), what)};
  return {FenceResult::Outcome::failure, fmt::format("exit status {}{}", WEXITSTATUS(status), what)};
}

}  // namespace

CommandMethod::CommandMethod(std::string path) : path_{std::move(path)} {
  std::error_code error;
  const auto status = std::filesystem::status(path_, error);
  if (path_.empty()) throw InvalidInput("--fence-method command:PATH: the path is missing");
  if (status.type() == std::filesystem::file_type::not_found)
    throw InvalidInput(fmt::format("--fence-method command: {} does not exist", path_));
  if (status.type() != std::filesystem::file_type::regular)
    throw InvalidInput(fmt::format("--fence-method command: {} is not a file", path_));
  if (::access(path_.c_str(), X_OK) != 0)
    throw InvalidInput(fmt::format("--fence-method command: {} is not executable", path_));
}

FenceResult CommandMethod::run(const TakeOver& take_over, const FenceRun& run) {
  try {
    const auto deadline = steady_clock::now() + run.limit;
    Run program{path_, take_over};
    if (const auto status = program.wait(deadline, run.stop)) return result_of(*status, program.said());
    program.kill();
    if (run.stop.stop_requested()) return {FenceResult::Outcome::failure, "it was ended, because we stop"};
    return {FenceResult::Outcome::timeout,
            fmt::format("it did not end within {} ms, and was killed", run.limit.count())};
  } catch (const Error& error) {
    return {FenceResult::Outcome::failure, error.what()};
  }
}

}  // namespace fenceguard
