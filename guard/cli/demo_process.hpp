#pragma once

// Processes: what the demonstration needs of the system. Child is a process, by default of this same program,
// that dies with us, TempFolder a folder that goes with its owner, Interruption what a signal turns waiting
// into. Whatever ends the demonstration, a signal included, unwinds the stack and thereby cleans up.
//
// Not thread-safe. Linux only (PR_SET_PDEATHSIG, signalfd).

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "guard/clock.hpp"
#include "guard/demonstration.hpp"

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

// How a child is started.
struct ChildOptions {
  std::string program = {};            // its path; empty: this same program
  std::vector<std::string> arguments;  // after the program's name
  std::map<std::string, std::string>
      environment;       // added to ours, of which nothing FENCEGUARD_… is passed on
  std::string log_file;  // where its stderr goes; empty: to ours
};

// A running process with pipes at its stdin and stdout.
class Child : public StageProcess {
 public:
  // Throws Unavailable if it cannot be started.
  Child(Interrupts& interrupts, ChildOptions options);
  // Kills it if it still runs.
  ~Child() override;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] int pid() const noexcept override { return pid_; }

  // Throws Unavailable if the child does not listen any more.
  void send_line(const std::string& line) override;

  // The next line of its stdout. Throws Unavailable if it ended, or said nothing for `limit`.
  [[nodiscard]] std::string receive_line() override;

  // Sends SIGSTOP, and returns when the process is known to be stopped.
  void pause() override;
  // Sends SIGCONT.
  void resume() override;

  // Sends SIGKILL, and returns when the process is gone.
  void kill() override;
  [[nodiscard]] bool is_over() override;

  // Sends SIGTERM and waits for the end; kills it after `limit`.
  void end();

  static constexpr std::chrono::seconds limit{10};

 private:
  bool read_more(BootClock::time_point deadline);
  bool is_over_by(BootClock::time_point deadline);

  Interrupts& interrupts_;
  std::string name_;  // for messages
  pid_t pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string received_;
};

}  // namespace fenceguard::demo
