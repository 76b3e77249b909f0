#pragma once

// Processes: what the demonstration needs of the system. Process runs a program, by default this one, and
// dies with us; TempFolder is a folder that goes with its owner; Interruption is what a signal turns waiting
// into. Whatever ends the demonstration, a signal included, unwinds the stack and thereby cleans up.
//
// Not thread-safe. Linux only (PR_SET_PDEATHSIG, signalfd).

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "guard/support/clock.hpp"

namespace fenceguard::demo {

// Thrown by everything that waits once SIGINT, SIGTERM or SIGHUP came.
struct Interruption {
  int signal;
};

// From its creation to its end, these signals interrupt waiting instead of ending the process.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Waits until descriptor can be read (true) or the deadline passed (false). A descriptor of -1 only waits.
  bool wait_readable(int descriptor, BootClock::time_point deadline);

 private:
  int signals_;
};

// A fresh folder under $TMPDIR or /tmp, removed with everything in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// What the demonstrations show, which is installed with them.
inline constexpr std::string_view guard_program = "fenceguard";

// How a process is started.
struct Command {
  std::string program{};  // found on PATH; guard_program: beside this one; empty: this same program
  std::string package{};  // the Debian package that has it, for the message where it is missing
  std::vector<std::string> arguments{};
  std::map<std::string, std::string> environment{};  // added to ours, of which no FENCEGUARD_... is passed on
  std::string log_file{};                            // where its stderr goes; empty: to ours
};

// A running process with pipes at its stdin and stdout.
class Process {
 public:
  // Throws Unavailable if it cannot be started, or the program is not there.
  Process(Interrupts& interrupts, Command command);
  // Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] int pid() const noexcept { return pid_; }

  // Throws Unavailable if it does not listen any more.
  void send_line(const std::string& line);

  // The next line of its stdout. Throws Unavailable if it ended, or said nothing for `limit`.
  [[nodiscard]] std::string receive_line();

  // Sends SIGSTOP, and returns when the process is known to be stopped.
  void pause();
  // Sends SIGCONT.
  void resume();

  // Sends SIGKILL, and returns when the process is gone.
  void kill();
  [[nodiscard]] bool is_over();

  // Sends SIGTERM and waits for the end; kills it after `limit`.
  void end();
  // Waits for an end of its own, for at most `limit`, and returns its exit status.
  [[nodiscard]] int wait();

  static constexpr std::chrono::seconds limit{10};

 private:
  bool read_more(BootClock::time_point deadline);
  bool is_over_in_time();  // waits for at most `limit`

  Interrupts& interrupts_;
  std::string name_;  // for messages
  pid_t pid_ = -1;
  int status_ = 0;  // as waitpid told it
  int to_child_ = -1;
  int from_child_ = -1;
  std::string received_;
};

}  // namespace fenceguard::demo
