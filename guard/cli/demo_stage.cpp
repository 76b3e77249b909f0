#include "guard/cli/demo_stage.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

constexpr std::chrono::seconds limit{10};
constexpr std::chrono::milliseconds look_again{5};

// As a shell finds it.
std::string find_program(const StageCommand& command) {
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
      "{} was not found on PATH, and this story is told with a real one; on Debian it is in the package {}",
      command.program, command.package));
}

}  // namespace

TaleStage::TaleStage(Interrupts& interrupts, std::string folder)
    : interrupts_{interrupts}, folder_{std::move(folder)}, began_{BootClock::now()} {
  std::filesystem::create_directory(folder_);
}

std::unique_ptr<StageProcess> TaleStage::start(const StageCommand& command) {
  ChildOptions options;
  if (!command.program.empty()) options.program = find_program(command);
  options.arguments = command.arguments;
  options.environment = command.environment;
  options.log_file = fmt::format("{}/stderr-{}", folder_, ++started_);
  return std::make_unique<Child>(interrupts_, std::move(options));
}

void TaleStage::wait(std::chrono::milliseconds time) {
  interrupts_.wait_readable(-1, BootClock::now() + time);
}

void TaleStage::wait_until(const std::function<bool()>& condition, std::string_view what) {
  const auto deadline = BootClock::now() + limit;
  while (!condition()) {
    if (BootClock::now() > deadline)
      throw Unavailable(fmt::format("{} did not come about in {} s", what, limit.count()));
    wait(look_again);
  }
}

void TaleStage::note(TaleEvent event) {
  event.at = std::chrono::duration_cast<std::chrono::microseconds>(BootClock::now() - began_);
  events_.push_back(std::move(event));
}

}  // namespace fenceguard::demo
