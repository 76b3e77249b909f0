#include "server/cli/terminal/command.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "guard/error.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard::cli {
namespace {

std::string command_help(const Command& command) {
  const auto usage = fmt::format("Usage: fenceguard {} {}", command.name, command.synopsis);
  auto text =
      fmt::format("fenceguard {}: {}.\n\n{}\n", command.name, command.summary, wrapped(usage, "       "));
  if (!command.settings.empty()) text += "\nOptions:\n" + describe(command.settings);
  if (!command.listing.empty()) text += "\n" + command.listing;
  if (!command.notes.empty()) text += fmt::format("\n{}\n", wrapped(command.notes, ""));
  return text;
}

}  // namespace

bool is_help(const std::string& argument) {
  return argument == "--help" || argument == "-h";
}

int run_command(const Command& command, std::vector<std::string> arguments,
                std::optional<std::span<const std::string_view>> known_elsewhere) {
  const auto as_given = arguments;
  if (!command.leading_setting.empty() && !arguments.empty() && !arguments[0].starts_with('-')) {
    arguments[0] = fmt::format("--{}={}", command.leading_setting, arguments[0]);
  }
  const auto flags_end = std::ranges::find(arguments, "--");
  const bool asks_help = std::any_of(arguments.begin(), flags_end, is_help);
  if (asks_help && !command.hand_over) {
    print_out(command_help(command));
    return exit_done;
  }
  try {
    if (asks_help) return command.hand_over(as_given);
    const auto settings = Settings::read(command.settings, arguments, known_elsewhere);
    if (!settings.command.empty() && !command.takes_command_line) {
      throw InvalidInput("it takes no command behind '--'");
    }
    return command.hand_over ? command.hand_over(as_given) : command.run(settings);
  } catch (const InvalidInput& error) {
    complain(fmt::format("{}: {}; see 'fenceguard {} --help'", command.name, error.what(), command.name));
    return command.usage_status;
  } catch (...) {
    const auto fault = current_fault();
    complain(fmt::format("{}: {}", command.name, fault.message));
    return command.fault_status.value_or(exit_status(fault.kind));
  }
}

}  // namespace fenceguard::cli
