#include "demo/demo.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "demo/kit/client_process.hpp"
#include "demo/kit/harness.hpp"
#include "demo/kit/page.hpp"
#include "demo/kit/text.hpp"
#include "demo/scenarios.hpp"
#include "guard/error.hpp"
#include "server/cli/terminal/output.hpp"

namespace fenceguard {
namespace demo {

std::vector<Scenario> scenarios() {
  return {gc_pause("", ""),  lost_update(),    read_before_advance(),
          delayed_packet(),  cut_off(),
#ifdef FENCEGUARD_REDIS
          expire_crash(),    foreign_unlock(), failover(),
          redlock_restart(), clock_jump(),
#endif
#ifdef FENCEGUARD_ZOOKEEPER
          session_expiry(),  herd(),
#endif
#ifdef FENCEGUARD_ETCD
          etcd_restore()
#endif
  };
}

}  // namespace demo

namespace {

using namespace demo;

TextStyle style_of_stdout() {
  const auto value_of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string_view{value ? value : ""};
  };
  TextStyle style;
  style.columns = cli::output_columns();
  // https://no-color.org
  style.colour = isatty(STDOUT_FILENO) == 1 && value_of("NO_COLOR").empty() && value_of("TERM") != "dumb";
  for (const auto* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const auto locale = value_of(name);
    if (locale.empty()) continue;
    style.unicode = locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
    break;
  }
  return style;
}

// Before the scenario is run, so that no user waits for a page that cannot be written.
void require_writable(const std::string& file) {
  const std::filesystem::path path{file};
  const auto extension = path.extension();
  if (!extension.empty() && extension != ".html" && extension != ".htm" && extension != ".svg")
    throw InvalidInput(fmt::format("--timeline: {}: a page ends in .html, a picture in .svg", file));
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path{"."};
  const bool is_there = access(file.c_str(), F_OK) == 0;
  if (std::filesystem::is_directory(path))
    throw InvalidInput(fmt::format("--timeline: {} is a folder", file));
  if (access(is_there ? file.c_str() : folder.c_str(), W_OK) == 0) return;
  throw Unavailable(fmt::format("--timeline: {} cannot be written: {}", file, std::strerror(errno)));
}

void write_page(const std::string& file, const std::string& page) {
  std::ofstream stream{file, std::ios::binary | std::ios::trunc};
  stream << page;
  stream.close();
  if (!stream) throw Unavailable(fmt::format("--timeline: {} cannot be written", file));
}

std::optional<Scenario> find_scenario(std::string_view name) {
  for (auto& scenario : scenarios())
    if (scenario.name == name) return scenario;
  return std::nullopt;
}

Scenario scenario_for(const DemoOptions& options) {
  if (options.via != "direct" && options.via != "sidecar") throw InvalidInput("--via: direct or sidecar");
  const bool via_sidecar = options.via == "sidecar";
  if (options.scenario == "gc-pause") return gc_pause(options.storage, options.source, via_sidecar);
  auto scenario = find_scenario(options.scenario);
  if (!scenario)
    throw InvalidInput(
        fmt::format("there is no scenario '{}'; there are:\n{}", options.scenario, demo_list()));
  if (options.storage.empty() && options.source.empty() && !via_sidecar) return *scenario;
  throw InvalidInput(fmt::format(
      "the scenario '{}' starts the servers that it needs; it takes no --storage, no --source and no --via",
      options.scenario));
}

Run run_once(const Scenario& scenario, bool guarded, const std::string& folder, Interrupts& interrupts) {
  Harness harness{interrupts, fmt::format("{}/{}", folder, guarded ? "with" : "without")};
  auto outcome = scenario.run(harness, guarded);
  return harness.take(std::move(outcome), guarded);
}

int perform(const DemoOptions& options) {
  if (!options.timeline_file.empty()) require_writable(options.timeline_file);
  const auto scenario = scenario_for(options);
  Interrupts interrupts;
  const TempFolder folder;
  const auto style = style_of_stdout();
  const auto show = [&](const std::string& text) {
    if (!options.json) cli::print_out(text);
  };
  show(text_opening(scenario, style) + '\n');
  const auto without = run_once(scenario, false, folder.path(), interrupts);
  show(text_run(scenario, without, style) + '\n');
  const auto with = run_once(scenario, true, folder.path(), interrupts);
  show(text_run(scenario, with, style) + '\n' + text_outcomes(scenario, without, with, style));
  if (options.json) cli::print_out(json_report(scenario, without, with) + '\n');
  if (const auto& file = options.timeline_file; !file.empty()) {
    const auto page = std::filesystem::path{file}.extension() == ".svg" ? svg_page : html_page;
    write_page(file, page(scenario, without, with));
    show(fmt::format("The same as a picture: {}\n", file));
  }
  if (without.outcome.as_expected && with.outcome.as_expected) return 0;
  cli::complain("demo: this is not what had to come out");
  return 1;
}

}  // namespace

std::string demo_list() {
  std::string text;
  for (const auto& scenario : scenarios())
    text += fmt::format("  {:<21}{}\n", scenario.name, scenario.summary);
  return text;
}

int demo_main(const DemoOptions& options) {
  try {
    return perform(options);
  } catch (const Interruption& interruption) {
    cli::complain("demo: interrupted");
    return 128 + interruption.signal;
  } catch (const InvalidInput& error) {
    // The list of scenarios has several lines.
    std::fputs(fmt::format("fenceguard: demo: {}\n", error.what()).c_str(), stderr);
    return 2;
  } catch (const std::exception& error) {
    cli::complain(fmt::format("demo: {}", error.what()));
    return 3;
  }
}

int demo_actor_main(const std::vector<std::string>& words) {
  try {
    const std::string name = words.empty() ? "" : words.front();
    if (name == "client") {
      run_client();
      return 0;
    }
    const auto scenario = find_scenario(name);
    if (!scenario || !scenario->act) throw InvalidInput("an actor of a demonstration is started by it alone");
    scenario->act({words.begin() + 1, words.end()});
    return 0;
  } catch (const std::exception& error) {
    cli::complain(fmt::format("demo-actor: {}", error.what()));
    return 3;
  }
}

}  // namespace fenceguard
