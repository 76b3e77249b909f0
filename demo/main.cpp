// fenceguard-demo: the program that 'fenceguard demo' becomes. It takes the same arguments and says the same;
// each process of a scenario that is no server is this program again, as 'demo-actor'.

#include <fmt/format.h>

#include <csignal>

#include "demo/demo.hpp"
#include "server/cli/terminal/demo_command.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard {
namespace {

int demo(const cli::Settings& settings) {
  return demo_main({.scenario = settings.text("scenario"),
                    .storage = settings.text("storage"),
                    .source = settings.text("source"),
                    .via = settings.text("via"),
                    .timeline_file = settings.text("timeline"),
                    .json = settings.is_on("json")});
}

int run(const std::vector<std::string>& arguments) {
  const auto word = arguments.empty() ? std::string{} : arguments.front();
  if (word == "demo-actor") return demo_actor_main({arguments.begin() + 1, arguments.end()});
  if (word == "--version") {
    cli::print_out(fmt::format("fenceguard-demo {}\n", FENCEGUARD_VERSION));
    return cli::exit_done;
  }
  auto command = cli::demo_description();
  command.run = demo;
  command.listing = "Scenarios:\n" + demo_list();
  // What settings other commands have, 'fenceguard demo' knows: it has looked at the file.
  return cli::run_command(command, arguments, std::nullopt);
}

}  // namespace
}  // namespace fenceguard

int main(int count, char** values) {
  // A parent that ignores it would else leave us without the ends of our own children (waitpid: ECHILD).
  std::signal(SIGCHLD, SIG_DFL);
  try {
    return fenceguard::run({values + 1, values + count});
  } catch (const std::exception& error) {
    fenceguard::cli::complain(error.what());
    return fenceguard::cli::exit_unknown;
  }
}
