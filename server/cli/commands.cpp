#include "server/cli/commands.hpp"

#include "server/cli/target/open_target.hpp"

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

std::vector<std::string> hidden_variables() {
  // The signature of an outer exec is not for this claim.
  std::vector<std::string> names{"FENCING_SIGNATURE", variable_name("fence-method")};
  for (const auto& command : commands()) {
    for (const auto& setting : command.settings) {
      const bool is_private = setting.kind == Kind::url || setting.kind == Kind::secret ||
                              setting.kind == Kind::token || setting.name == signature_setting.name;
      if (is_private) names.push_back(variable_name(setting.name));
    }
  }
  return names;
}

}  // namespace fenceguard::cli
