#include "demo/kit/harness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

constexpr std::chrono::milliseconds look_again{5};

std::chrono::microseconds microseconds_of(BootClock::duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time);
}

}  // namespace

Harness::Harness(Interrupts& interrupts, std::string folder)
    : interrupts_{interrupts}, folder_{std::move(folder)}, began_{BootClock::now()} {
  std::filesystem::create_directory(folder_);
}

std::unique_ptr<Process> Harness::start(Command command) {
  if (command.log_file.empty()) command.log_file = fmt::format("{}/stderr-{}", folder_, ++started_);
  return std::make_unique<Process>(interrupts_, std::move(command));
}

void Harness::run_guard(std::vector<std::string> arguments) {
  const auto log = fmt::format("{}/command-{}.log", folder_, ++started_);
  const auto process =
      start({.program = std::string{guard_program}, .arguments = std::move(arguments), .log_file = log});
  if (process->wait() != 0) throw Unavailable(last_line_of(log));
}

void Harness::wait(std::chrono::milliseconds time) {
  interrupts_.wait_readable(-1, BootClock::now() + time);
}

void Harness::wait_until(const std::function<bool()>& condition, std::string_view what,
                         std::chrono::seconds limit) {
  const auto deadline = BootClock::now() + limit;
  while (!condition()) {
    if (BootClock::now() > deadline)
      throw Unavailable(fmt::format("{} did not come about in {} s", what, limit.count()));
    wait(look_again);
  }
}

void Harness::note(Event event) {
  if (event.at.count() == 0) event.at = now();
  if (event.began.count() == 0) event.began = event.at;
  if (event.stored) stored_ = *event.stored;
  events_.push_back(std::move(event));
}

void Harness::note(std::string actor, std::string what, Tone tone) {
  note({.actor = std::move(actor), .what = std::move(what), .tone = tone});
}

void Harness::restart_clock() {
  began_ = BootClock::now();
}

std::chrono::microseconds Harness::now() const {
  return microseconds_of(BootClock::now() - began_);
}

std::chrono::microseconds Harness::since_start(std::int64_t boot_clock_us) const {
  return std::chrono::microseconds{boot_clock_us} - microseconds_of(began_.time_since_epoch());
}

Run Harness::take(Outcome outcome, bool guarded) {
  std::ranges::stable_sort(events_, {}, &Event::at);
  return {guarded, initial_, std::move(events_), std::move(outcome)};
}

std::string last_line_of(const std::string& file) {
  std::ifstream stream{file};
  std::string last;
  for (std::string line; std::getline(stream, line);)
    if (!line.empty()) last = line;
  return last;
}

}  // namespace fenceguard::demo
