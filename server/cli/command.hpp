#pragma once

// Command: one thing that the binary does, with its settings. Each command's file makes its own; commands()
// is the table that main dispatches from and --help lists.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/cli/settings.hpp"

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
};

// Names and statuses are the design's, section 6.
[[nodiscard]] Command demo_command();
[[nodiscard]] Command serve_command();
[[nodiscard]] Command exec_command();
[[nodiscard]] Command status_command();
[[nodiscard]] Command doctor_command();
[[nodiscard]] std::vector<Command> sql_commands();
[[nodiscard]] std::vector<Command> lease_commands();
[[nodiscard]] std::vector<Command> fence_commands();

// All of them, in the order of --help.
[[nodiscard]] const std::vector<Command>& commands();

// The variables of the environment that may hold a password or a token of ours, which is not the business of
// a program that is run here.
[[nodiscard]] std::vector<std::string> hidden_variables();

}  // namespace fenceguard::cli
