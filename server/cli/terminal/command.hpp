#pragma once

// Command: one thing that the binary does, with its settings.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/cli/terminal/settings.hpp"

namespace fenceguard::cli {

struct Command {
  std::string_view name;      // 'serve', 'lease acquire'
  std::string_view synopsis;  // its arguments, one line
  std::string_view summary;   // one sentence
  std::vector<Setting> settings;
  int (*run)(const Settings& settings) = nullptr;
  std::string_view notes = {};            // printed at the end of its help
  std::string listing = {};               // printed before them as it is
  int usage_status = 2;                   // exit status after wrong usage
  std::optional<int> fault_status = {};   // exit status after every other fault; left out: by its kind
  std::string_view leading_setting = {};  // the setting that a first argument without dashes stands for
  bool takes_command_line = false;        // '-- COMMAND…' may follow
  // The command is another program, which is given the arguments as they came once its settings were read
  // without a fault, and which prints its help itself: used instead of run.
  int (*hand_over)(const std::vector<std::string>& arguments) = nullptr;
};

[[nodiscard]] bool is_help(const std::string& argument);

// Reads the command's settings, runs it, and returns its exit status; what it threw is a sentence on stderr.
// known_elsewhere: as Settings::read. Throws OutcomeUnknown where its help cannot be printed.
[[nodiscard]] int run_command(const Command& command, std::vector<std::string> arguments,
                              std::optional<std::span<const std::string_view>> known_elsewhere);

}  // namespace fenceguard::cli
