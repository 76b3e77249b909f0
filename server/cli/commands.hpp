#pragma once

// The table of commands that main dispatches from and --help lists. Each command's file makes its own.

#include <string>
#include <vector>

#include "server/cli/terminal/command.hpp"

namespace fenceguard::cli {

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
