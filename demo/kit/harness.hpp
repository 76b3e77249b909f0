#pragma once

// Harness: where one run of a scenario takes place: its folder, its processes, its clock, and the record of
// its events. Whatever ends a run, a signal included, unwinds the stack: processes and folder go with their
// owners.
//
// Not thread-safe.

#include <memory>
#include <utility>

#include "demo/kit/process.hpp"
#include "demo/kit/scenario.hpp"

namespace fenceguard::demo {

class Harness {
 public:
  // Makes the folder. REQUIRES: interrupts outlives the harness.
  Harness(Interrupts& interrupts, std::string folder);

  // Of this run alone, and empty at its start.
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

  // What it writes to stderr goes to a file of the folder, unless the command names another.
  [[nodiscard]] std::unique_ptr<Process> start(Command command);
  // Runs the guard's program to its end. Throws Unavailable with what it said unless its status is 0.
  void run_guard(std::vector<std::string> arguments);

  void wait(std::chrono::milliseconds time);
  // Asks until it is true. Throws Unavailable after the limit: 'WHAT did not come about'.
  void wait_until(const std::function<bool()>& condition, std::string_view what,
                  std::chrono::seconds limit = std::chrono::seconds{10});

  // Adds an event, at the present time unless it has its own.
  void note(Event event);
  // Adds what an actor did alone.
  void note(std::string actor, std::string what, Tone tone = Tone::plain);
  // The present time, and a time of BootClock in microseconds, since the harness was made or restart_clock()
  // was called last.
  void restart_clock();
  [[nodiscard]] std::chrono::microseconds now() const;
  [[nodiscard]] std::chrono::microseconds since_start(std::int64_t boot_clock_us) const;

  // What the account holds, according to the events.
  void open_account(std::int64_t balance) { initial_ = stored_ = balance; }
  [[nodiscard]] std::int64_t stored() const noexcept { return stored_; }

  // Everything that was noted, sorted by time.
  [[nodiscard]] Run take(Outcome outcome, bool guarded);

 private:
  Interrupts& interrupts_;
  std::string folder_;
  BootClock::time_point began_;
  std::vector<Event> events_;
  std::optional<std::int64_t> initial_;
  std::int64_t stored_ = 0;
  int started_ = 0;  // processes
};

// The last line that is not empty; empty if there is none.
[[nodiscard]] std::string last_line_of(const std::string& file);

}  // namespace fenceguard::demo
