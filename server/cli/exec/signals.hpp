#pragma once

// The signals that exec handles, and what they are waited for with.

#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace fenceguard::cli {

inline constexpr std::array handled_signals{SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1,
                                            SIGUSR2, SIGTSTP, SIGCONT, SIGTTOU};

// Wakes a poll from another thread.
class Bell {
 public:
  Bell() : descriptor_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {}
  ~Bell() { ::close(descriptor_); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  void ring() const { ::eventfd_write(descriptor_, 1); }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

// The signals that exec handles, as something to poll.
class Signals {
 public:
  // Blocks them. REQUIRES: the process has one thread.
  Signals() {
    sigset_t handled;
    sigemptyset(&handled);
    for (const int number : handled_signals) sigaddset(&handled, number);
    ::sigprocmask(SIG_BLOCK, &handled, &before_);
    sigdelset(&handled, SIGTTOU);  // only blocked: taking the terminal back raises it
    descriptor_ = ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() { ::close(descriptor_); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] const sigset_t& before() const noexcept { return before_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  // The next one; 0 if there is none.
  [[nodiscard]] int next() const {
    signalfd_siginfo info{};
    return ::read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

}  // namespace fenceguard::cli
