#include "demo/servers/guard_server.hpp"

#include <fmt/format.h>

#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

std::string address_after(const std::string& line, std::string_view name) {
  const auto at = line.find(name);
  if (at == std::string::npos) throw Unavailable("no address");
  const auto start = at + name.size();
  return "http://" + line.substr(start, line.find(' ', start) - start);
}

Command command_of(const GuardOptions& options, const std::string& log_file) {
  Command command{.program = std::string{guard_program},
                  .arguments = {"serve", "--control", "127.0.0.1:0", "--log-level", "warning"}};
  auto& arguments = command.arguments;
  arguments.insert(arguments.end(), {"--listen", options.has_data_side ? "127.0.0.1:0" : "none"});
  if (options.initialise) arguments.emplace_back("--init");
  // Whose state it keeps, it has kept from the beginning.
  if (options.initialise && !options.state.empty()) arguments.emplace_back("--settled");
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  // URLs may hold passwords, and every user of the machine can read arguments.
  command.environment["FENCEGUARD_STORAGE"] = options.storage;
  if (!options.source.empty()) command.environment["FENCEGUARD_SOURCE"] = options.source;
  if (!options.state.empty()) command.environment["FENCEGUARD_STATE"] = options.state;
  command.log_file = log_file;
  return command;
}

}  // namespace

GuardServer::GuardServer(Harness& harness, const GuardOptions& options) {
  const auto log = harness.folder() + "/guard.log";
  process_ = harness.start(command_of(options, log));
  try {
    const auto line = process_->receive_line();
    data_ = address_after(line, "data=");
    control_ = address_after(line, "control=");
  } catch (const Unavailable&) {
    const auto reason = last_line_of(log);
    throw Unavailable(fmt::format("the demonstration's server did not start: {}",
                                  reason.empty() ? "no reason given" : reason));
  }
}

}  // namespace fenceguard::demo
