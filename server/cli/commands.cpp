#include "server/cli/command.hpp"

namespace fenceguard::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = [] {
    std::vector<Command> list{demo_command(), serve_command(), exec_command()};
    for (auto&& command : lease_commands()) list.push_back(command);
    for (auto&& command : fence_commands()) list.push_back(command);
    for (auto&& command : sql_commands()) list.push_back(command);
    list.push_back(status_command());
    list.push_back(doctor_command());
    return list;
  }();
  return all;
}

}  // namespace fenceguard::cli
