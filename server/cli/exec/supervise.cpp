// The supervisor's side of supervisor.hpp. One thread, one poll loop, no allocation that matters.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "guard/support/clock.hpp"
#include "server/cli/exec/supervisor.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard::cli {
namespace {

using Kind = SupervisorMessage::Kind;
using std::chrono::milliseconds;

constexpr milliseconds look_again{20};        // at processes whose end is not reported
constexpr milliseconds give_up_after{5'000};  // on processes that SIGKILL does not end

// In the command's process: never returns.
[[noreturn]] void become(const SupervisedCommand& command, const sigset_t& mask, std::string_view variables) {
  for (const auto& name : command.hidden_variables) ::unsetenv(name.c_str());
  while (!variables.empty()) {
    const auto variable = variables.substr(0, variables.find('\0'));
    const auto equals = variable.find('=');
    ::setenv(std::string{variable.substr(0, equals)}.c_str(),
             std::string{variable.substr(equals + 1)}.c_str(), 1);
    variables.remove_prefix(variable.size() + 1);
  }
  std::vector<char*> words;
  for (const auto& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(words[0], words.data());
  const int error = errno;
  complain(fmt::format("cannot run '{}': {}", words[0], std::strerror(error)));
  std::fflush(stderr);
  ::_exit(error == ENOENT ? 127 : 126);
}

// The command's process and its group, and what became of them.
class CommandGroup {
 public:
  void started(pid_t id) { id_ = id; }
  // There was none to start; the command ended with this status of wait().
  void not_started(int status) {
    has_ended_ = true;
    status_ = status;
  }

  [[nodiscard]] pid_t id() const { return id_; }               // 0: not started
  [[nodiscard]] bool has_ended() const { return has_ended_; }  // the command's own process
  [[nodiscard]] bool is_stopped() const { return is_stopped_; }
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] bool has_children() const { return has_children_; }
  [[nodiscard]] bool is_alive() const { return id_ > 0 && (!has_ended_ || ::kill(-id_, 0) == 0); }

  void signal(int number) const {
    if (is_alive()) ::kill(-id_, number);
  }

  // Whatever left the group: orphans become our children, because we are a subreaper.
  static void kill_children() {
    std::ifstream children{fmt::format("/proc/self/task/{}/children", ::getpid())};
    for (pid_t child = 0; children >> child;) ::kill(child, SIGKILL);
  }

  // Takes what the kernel has to say of our children. stopped: called with the signal that stopped it.
  template <class Stopped>
  void reap(Stopped stopped) {
    int status = 0;
    has_children_ = true;
    for (;;) {
      const auto child = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
      if (child < 0) has_children_ = false;
      if (child <= 0) return;
      if (child != id_) continue;
      if (WIFSTOPPED(status)) {
        is_stopped_ = true;
        stopped(WSTOPSIG(status));
      } else if (WIFCONTINUED(status)) {
        is_stopped_ = false;
      } else {
        has_ended_ = true;
        status_ = status;
      }
    }
  }

 private:
  pid_t id_ = 0;
  bool has_children_ = false;
  bool has_ended_ = false;
  bool is_stopped_ = false;
  int status_ = 0;
};

// One run of the command: ends it when its time is over, when it is told to, or when exec is gone.
class LeaseWatchdog {
 public:
  LeaseWatchdog(int socket, pid_t exec_group, const SupervisedCommand& command, const sigset_t& mask)
      : socket_{socket}, exec_group_{exec_group}, command_{command}, mask_{mask} {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    children_ = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    clock_ = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  }
  ~LeaseWatchdog() {
    ::close(children_);
    ::close(clock_);
  }
  LeaseWatchdog(const LeaseWatchdog&) = delete;
  LeaseWatchdog& operator=(const LeaseWatchdog&) = delete;

  // Until nothing is left to watch. True: exec may have another run of it.
  [[nodiscard]] bool run() {
    while (!is_over()) {
      std::array<pollfd, 3> ready{
          {{has_parent_ ? socket_ : -1, POLLIN, 0}, {children_, POLLIN, 0}, {clock_, POLLIN, 0}}};
      const bool looks_again = group_.has_ended() || kill_at_ || clock_ < 0;
      ::poll(ready.data(), ready.size(), looks_again ? static_cast<int>(look_again.count()) : -1);
      if (ready[0].revents != 0) listen();
      check_time();
      if (ready[1].revents != 0) drop_signals();
      group_.reap([this](int number) { tell({Kind::stopped, number}); });
      if (group_.has_ended() && !kill_at_) end_rest();
      if (kill_at_ && BootClock::now() >= *kill_at_) kill_all();
    }
    const bool is_anything_left = group_.has_children() || group_.is_alive();
    if ((group_.id() != 0 || group_.has_ended()) && has_parent_)
      tell({is_anything_left ? Kind::left : Kind::ended, group_.status()});
    return has_parent_;
  }

 private:
  // Takes all that exec has said. What moves the time counts first, because exec said it while the lease was
  // held, however late it is heard; only then is it known what may still be continued.
  void listen() {
    std::vector<std::vector<char>> packets;
    while (has_parent_ && receive(packets)) {
    }
    for (const auto& packet : packets) move_time(head_of(packet));
    check_time();
    for (const auto& packet : packets) obey(packet);
    resume_confirmed();
  }

  // What is said between two runs is late, and of the one before.
  void move_time(const SupervisorMessage& message) {
    const bool is_of_run = message.kind == Kind::run && message.value != 0;
    is_expected_ = is_expected_ || is_of_run || !command_.is_repeated;
    if (is_of_run || (message.kind == Kind::until && is_expected_)) set_time(message.value);
  }

  // False if nothing is there.
  bool receive(std::vector<std::vector<char>>& packets) {
    // As long as it is: it may hold a long variable of the user's own.
    const auto expected = ::recv(socket_, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    if (expected < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    std::vector<char> packet(expected > 0 ? static_cast<std::size_t>(expected) : 0);
    const auto size = ::recv(socket_, packet.data(), packet.size(), MSG_DONTWAIT);
    if (size < static_cast<ssize_t>(sizeof(SupervisorMessage))) {
      has_parent_ = false;
      is_forced_ = true;
      kill_at_ = BootClock::now();
      return false;
    }
    packets.push_back(std::move(packet));
    return true;
  }

  static SupervisorMessage head_of(const std::vector<char>& packet) {
    SupervisorMessage message;
    std::memcpy(&message, packet.data(), sizeof message);
    return message;
  }

  void obey(const std::vector<char>& packet) {
    const auto message = head_of(packet);
    switch (message.kind) {
      case Kind::run:
        start({packet.data() + sizeof message, packet.size() - sizeof message});
        break;
      case Kind::signal:
        group_.signal(static_cast<int>(message.value));
        break;
      case Kind::resume:
        resume(BootClock::time_point{std::chrono::nanoseconds{message.value}});
        break;
      case Kind::confirm:
        term_ = BootClock::duration{message.value};
        break;
      case Kind::end:
        // Of a run that was over before this was heard nothing is left to end.
        if (group_.id() != 0 || !command_.is_repeated) end_early();
        break;
      case Kind::grace:
        kill_after_ = milliseconds{message.value};
        break;
      default:
        break;
    }
  }

  void start(std::string_view variables) {
    if (is_forced_) {  // exec was stopped between its lease and this
      group_.not_started(SIGKILL);
      return;
    }
    const auto supervisor = ::getpid();
    const int terminal = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    const bool is_in_foreground = terminal >= 0 && ::tcgetpgrp(terminal) == exec_group_;
    const auto child = ::fork();
    if (child == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != supervisor) ::_exit(125);
      if (is_in_foreground) ::tcsetpgrp(terminal, ::getpid());
      become(command_, mask_, variables);
    }
    if (terminal >= 0) ::close(terminal);
    if (child < 0) {
      complain("cannot fork the command");
      group_.not_started(125 << 8);
      return;
    }
    // In both processes, because either may be the first to need it.
    ::setpgid(child, child);
    group_.started(child);
    tell({Kind::started, child});
  }

  // Does not move what is over.
  void set_time(std::int64_t boot_ns) {
    if (is_forced_) return;
    const std::chrono::nanoseconds left{boot_ns};
    until_ = BootClock::time_point{left};
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const itimerspec at{{}, {seconds.count(), (left - seconds).count()}};
    ::timerfd_settime(clock_, TFD_TIMER_ABSTIME, &at, nullptr);
  }

  void check_time() {
    if (until_ && BootClock::now() >= *until_) end_overdue();
  }

  // The time is over: the lease is still held for as long as it takes to end the command, where that is
  // certain.
  void end_overdue() {
    const auto last = *until_ + std::chrono::nanoseconds{kill_after_};
    stop_clock();
    tell({Kind::overdue, 0});
    if (term_ || command_.is_repeated) {
      end_early();
    } else {
      is_forced_ = true;
      if (BootClock::now() < last) ask_to_end();
    }
    kill_at_ = std::min(kill_at_.value_or(last), last);
  }

  // The lease may be another holder's already: what is stopped stays so until it is killed.
  void end_early() {
    if (is_forced_) return;
    stop_clock();
    is_forced_ = true;
    group_.signal(SIGTERM);
    const auto grace = group_.is_stopped() ? milliseconds{0} : kill_after_;
    const auto last = BootClock::now() + std::chrono::nanoseconds{grace};
    kill_at_ = std::min(kill_at_.value_or(last), last);
  }

  void resume(BootClock::time_point said_at) {
    if (is_forced_) return;
    if (!term_) return group_.signal(SIGCONT);
    resumes_from_ = said_at;
    resume_confirmed();
  }

  // Continues what waits for that once a renewal has succeeded that was sent since it was told to be.
  void resume_confirmed() {
    if (!resumes_from_ || !until_ || *until_ - *term_ < *resumes_from_) return;
    resumes_from_.reset();
    group_.signal(SIGCONT);
  }

  void stop_clock() {
    until_.reset();
    const itimerspec never{};
    ::timerfd_settime(clock_, 0, &never, nullptr);
  }

  // What the command left in its group. What is stopped and may be another holder's to continue stays so.
  void end_rest() {
    if (term_ && group_.is_stopped()) return end_early();
    ask_to_end();
  }

  void ask_to_end() {
    if (kill_at_) return;
    group_.signal(SIGTERM);
    group_.signal(SIGCONT);
    kill_at_ = BootClock::now() + std::chrono::nanoseconds{kill_after_};
  }

  void kill_all() {
    group_.signal(SIGKILL);
    if (is_forced_) CommandGroup::kill_children();
    if (!give_up_at_) give_up_at_ = BootClock::now() + std::chrono::nanoseconds{give_up_after};
  }

  void drop_signals() const {
    signalfd_siginfo info{};
    while (::read(children_, &info, sizeof info) == sizeof info) {
    }
  }

  // A command that ended by itself may leave daemons, which are no longer in its group; one that was ended
  // may not.
  [[nodiscard]] bool is_over() const {
    if (group_.id() == 0) return !has_parent_ || group_.has_ended();
    if (give_up_at_ && BootClock::now() >= *give_up_at_) return true;
    return group_.has_ended() && !group_.is_alive() && !(is_forced_ && group_.has_children());
  }

  // An exec that is stopped hears nothing, and must not keep this from its work: only what ends has to
  // arrive.
  void tell(SupervisorMessage message) const {
    const bool may_be_lost = message.kind == Kind::stopped || message.kind == Kind::overdue;
    static_cast<void>(
        ::send(socket_, &message, sizeof message, MSG_NOSIGNAL | (may_be_lost ? MSG_DONTWAIT : 0)));
  }

  const int socket_;
  const pid_t exec_group_;
  const SupervisedCommand& command_;
  const sigset_t mask_;
  milliseconds kill_after_ = command_.kill_after;
  int children_ = -1;
  int clock_ = -1;
  CommandGroup group_;
  bool is_expected_ = false;  // told to run, or the only run
  bool has_parent_ = true;
  bool is_forced_ = false;                      // told to end it, or its time is over, or exec is gone
  std::optional<BootClock::time_point> until_;  // the command may work; none: not told, or over
  std::optional<BootClock::duration> term_;     // of a lease that may end before its time; see Kind::confirm
  std::optional<BootClock::time_point> resumes_from_;  // told to continue, which waits for a renewal
  std::optional<BootClock::time_point> kill_at_;
  std::optional<BootClock::time_point> give_up_at_;
};

}  // namespace

void supervise(int socket, pid_t exec_group, const SupervisedCommand& command, const sigset_t& mask) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  std::signal(SIGCHLD, SIG_DFL);
  ::setpgid(0, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  while (LeaseWatchdog{socket, exec_group, command, mask}.run() && command.is_repeated) {
  }
}

}  // namespace fenceguard::cli
