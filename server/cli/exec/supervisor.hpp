#pragma once

// Supervisor: the small process between exec and its command, so that the command never outlives exec,
// whatever exec dies of. It holds one end of a socket whose other end only exec has: when exec dies, even by
// SIGKILL, the kernel closes that end, and the supervisor kills the command's process group and everything
// else that it started. Should the supervisor itself be killed, the kernel kills the command with it.
//
// Nor does the command outlive exec's lease, should exec be stopped: the supervisor is told at each renewal
// until when the command may work, and ends it then by itself:
//   1. SIGTERM, and SIGCONT behind it, so that a stopped command runs nothing but its handler first. This is
//      still within the lease.
//   2. SIGKILL, kill_after later, before the source may grant the lock to another holder. A supervisor that
//      was itself stopped or suspended past that moment sends it at once, and no SIGCONT.
// A repeated command (--hold-for) is ended so, too, but what of it is stopped is killed in step 1.
//
// Where exec tells it to end the command before that time, another holder may have the lock already: a
// stopped command is killed without being continued, a running one has SIGTERM and kill_after. So it is where
// the lease lives by a connection. What is over is never continued, whatever signals are forwarded.
//
// It is forked before exec has a second thread, is single-threaded, sits in a process group of its own (so
// that a signal to exec's whole group leaves it alive), and has all signals blocked.
//
// Not thread-safe.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "guard/support/clock.hpp"

namespace fenceguard::cli {

// What exec and its supervisor say to each other, one message per packet.
struct SupervisorMessage {
  enum class Kind : std::int64_t {
    run,  // to the supervisor: start the command, which may work until then, as in until (0: not said); the
          // packet goes on with NAME=VALUE lines, each ended by NUL
    signal,   // to the supervisor: send this signal to the command's process group
    resume,   // to the supervisor: continue it; the moment of BootClock at which that was said
    end,      // to the supervisor: end everything, SIGTERM first, SIGKILL later
    until,    // to the supervisor: the command may work until then, in nanoseconds of BootClock
    grace,    // to the supervisor: another kill_after, in milliseconds
    confirm,  // to the supervisor: see confirm_before_continuing()
    started,  // to exec: the command's process group
    stopped,  // to exec: the command was stopped by this signal
    ended,    // to exec: nothing of the command is left; its wait status
    left,     // to exec: it has ended, with this wait status, and what left its group lives on, or what
              // SIGKILL does not end
    overdue,  // to exec: the time was over, and the command, if it ran, is being ended
    gone,     // to exec, made up at its end of the socket: the supervisor died
  };
  Kind kind = Kind::gone;
  std::int64_t value = 0;
};

struct SupervisedCommand {
  std::vector<std::string> words;               // the program, looked for in PATH, and its arguments
  std::vector<std::string> hidden_variables;    // taken out of its environment
  std::chrono::milliseconds kill_after{5'000};  // from SIGTERM to SIGKILL
  // It may be started again once its end was told: nothing of one run is left in the next.
  bool is_repeated = false;
};

class Supervisor {
 public:
  // Forks the supervisor; the command starts with run(). REQUIRES: the process has one thread, and the
  // signals that exec handles are blocked; mask is the signal mask from before, which the command gets back.
  // Throws Unavailable.
  Supervisor(const SupervisedCommand& command, const sigset_t& mask);
  // Closes the socket, which ends everything that is left.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // All that the command starts descends from it, as long as it lives.
  [[nodiscard]] pid_t process() const noexcept { return process_; }
  // Starts the command with these NAME=VALUE variables added to its environment. until: as in work_until(). A
  // repeated command needs it: what was said before a run is of the one before.
  void run(const std::vector<std::string>& variables, std::optional<BootClock::time_point> until = {});
  // From SIGTERM to SIGKILL, instead of what the command was given with.
  void set_kill_after(std::chrono::milliseconds kill_after);
  // The command may work until then. Later calls move that moment; one that comes after it changes nothing.
  // Does not block: what a stopped supervisor cannot take is dropped, and the earlier moment counts. Any
  // thread.
  void work_until(BootClock::time_point moment);
  // The lease may end before its time, as one that lives by a connection does: what is stopped is continued
  // only once a renewal was sent after it was told to be, which work_until() shows: it is term after the
  // moment at which the renewal was sent. Otherwise it is killed.
  void confirm_before_continuing(BootClock::duration term);
  void send_signal(int number);
  // Continues a command that was stopped, unless its time is over.
  void resume();
  // Continues a supervisor that was stopped, too.
  void end();

  // Becomes readable when there is something to receive.
  [[nodiscard]] int descriptor() const noexcept { return socket_; }
  [[nodiscard]] SupervisorMessage receive();

 private:
  int socket_ = -1;
  pid_t process_ = -1;
};

// The supervisor's own life; returns when nothing of the command is left and it is not to be repeated, or
// without having started it when exec went away first. Called in the forked process.
void supervise(int socket, pid_t exec_group, const SupervisedCommand& command, const sigset_t& mask);

}  // namespace fenceguard::cli
