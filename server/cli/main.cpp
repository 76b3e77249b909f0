// fenceguard: one binary, one command per thing that it does. Finds the command, reads its settings, runs it,
// and turns what was thrown into a sentence on stderr and an exit status.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "guard/error.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/terminal/common_settings.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard::cli {
namespace {

// A slip in a command, and not a URL with a password in the wrong place.
bool is_word(std::string_view argument) {
  constexpr std::size_t shown_max = 32;
  return argument.size() <= shown_max && std::ranges::all_of(argument, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
         });
}

// 'lease' of 'lease acquire'.
std::string_view group_of(const Command& command) {
  return command.name.substr(0, command.name.find(' '));
}

std::string general_help() {
  std::string text =
      "fenceguard keeps stale writers out of storage: it checks fencing tokens where the data is.\n\n"
      "Usage: fenceguard COMMAND [OPTION…]\n\nCommands:\n";
  for (const auto& command : commands()) text += fmt::format("  {:<15}{}\n", command.name, command.summary);
  text +=
      "\n'fenceguard COMMAND --help' tells a command's options. Every option can be given as a flag, as an\n"
      "environment variable (FENCEGUARD_LISTEN for --listen) or as a line of an INI file (--config FILE).\n"
      "Exit status: 0 done; 1 a clear 'no'; 2 wrong usage; 3 a fault, nothing done; 4 outcome unknown.\n";
  return text;
}

std::string group_help(std::string_view group) {
  std::string text = fmt::format("Usage: fenceguard {} COMMAND [OPTION…]\n\nCommands:\n", group);
  for (const auto& command : commands()) {
    if (group_of(command) == group) text += fmt::format("  {:<15}{}\n", command.name, command.summary);
  }
  return text;
}

// The command that the arguments begin with, if there is one.
const Command* find_command(const std::vector<std::string>& arguments) {
  for (const auto& command : commands()) {
    const bool is_grouped = command.name != group_of(command);
    const auto name = is_grouped && arguments.size() > 1 ? arguments[0] + " " + arguments[1] : arguments[0];
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::vector<std::string_view> all_setting_names() {
  std::vector<std::string_view> names;
  for (const auto& command : commands()) {
    for (const auto& setting : command.settings) {
      if (setting.name != config_setting.name) names.push_back(setting.name);
    }
  }
  return names;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    complain("a command is missing; see 'fenceguard --help'");
    return exit_usage;
  }
  if (arguments[0] == "--version") {
    print_out(fmt::format("fenceguard {}\nbuilt with {}\n", FENCEGUARD_VERSION, FENCEGUARD_BUILT_WITH));
    return exit_done;
  }
  if (is_help(arguments[0]) || arguments[0] == "help") {
    print_out(general_help());
    return exit_done;
  }
  if (const auto* command = find_command(arguments)) {
    const auto words = std::ranges::count(command->name, ' ') + 1;
    return run_command(*command, {arguments.begin() + words, arguments.end()}, all_setting_names());
  }
  const auto is_in_group = [&](const Command& command) { return group_of(command) == arguments[0]; };
  if (std::ranges::any_of(commands(), is_in_group)) {
    if (arguments.size() > 1 && is_help(arguments[1])) {
      print_out(group_help(arguments[0]));
      return exit_done;
    }
    const auto wrong = arguments.size() > 1 && is_word(arguments[1])
                           ? fmt::format(", and '{}' is none of them", arguments[1])
                           : "";
    complain(
        fmt::format("'{0}' needs one of its commands{1}; see 'fenceguard {0} --help'", arguments[0], wrong));
    return exit_usage;
  }
  complain(fmt::format("unknown command{}; see 'fenceguard --help'",
                       is_word(arguments[0]) ? fmt::format(" '{}'", arguments[0]) : ""));
  return exit_usage;
}

}  // namespace
}  // namespace fenceguard::cli

int main(int count, char** values) {
  // A parent that ignores it would else leave us without the ends of our own children (waitpid: ECHILD).
  std::signal(SIGCHLD, SIG_DFL);
  try {
    return fenceguard::cli::run({values + 1, values + count});
  } catch (const std::exception& error) {
    fenceguard::cli::complain(error.what());
    return fenceguard::cli::exit_unknown;
  }
}
