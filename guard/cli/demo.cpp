#include "guard/cli/demo.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "adapters/schemes.hpp"
#include "guard/cli/demo_messages.hpp"
#include "guard/cli/demo_story.hpp"
#include "guard/cli/timeline.hpp"
#include "guard/error.hpp"

namespace fenceguard {
namespace {

using namespace demo;

constexpr std::string_view known_scenario = "gc-pause";

TextStyle style_of_stdout() {
  const auto value_of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string_view{value ? value : ""};
  };
  TextStyle style;
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

// Before the story is told, so that nobody waits for a page that cannot be written.
void require_writable(const std::string& file) {
  const std::filesystem::path path{file};
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

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Unavailable("the output cannot be written");
}

// What is asked for must be there before anything is started.
void check(const DemoOptions& options) {
  if (options.scenario != known_scenario)
    throw InvalidInput(
        fmt::format("there is no scenario '{}'; there is: {}", options.scenario, known_scenario));
  if (!options.timeline_file.empty()) require_writable(options.timeline_file);
  if (!options.source.empty()) (void)schemes().find(Url::parse(options.source));
  if (options.storage.empty()) return;
  const auto url = Url::parse(options.storage);
  if (const auto& scheme = schemes().find(url); !scheme.open_unguarded && !scheme.open_direct)
    throw InvalidInput(fmt::format(
        "--storage: the demonstration also writes round the guard, and a {}: storage offers no way for that",
        url.scheme));
}

Stage stage_for(const DemoOptions& options, const std::string& folder, bool guarded) {
  const char* way = guarded ? "through" : "round";
  Stage stage;
  stage.source = options.source;
  stage.log_file = fmt::format("{}/{}.log", folder, way);
  if (options.storage.empty()) {
    stage.storage = fmt::format("sqlite:{}/{}.db", folder, way);
    stage.resource = "accounts/42";
    stage.initialise = true;
  } else {
    stage.storage = options.storage;
    const auto suffix = Holder::random().id().substr(0, 12);
    stage.resource = fmt::format("fenceguard-demo/{}", suffix);
    stage.is_borrowed = true;
    if (schemes().find(Url::parse(stage.storage)).open_direct) stage.place = "fenceguard_demo_" + suffix;
  }
  return stage;
}

int perform(const DemoOptions& options, Interrupts& interrupts) {
  const auto style = style_of_stdout();
  const TempFolder folder;
  const auto show = [&](const std::string& text) {
    if (!options.json) print(text);
  };
  const auto round_stage = stage_for(options, folder.path(), false);
  Run opening;
  opening.resource = round_stage.resource;
  show(text_opening(opening, style) + '\n');
  const auto round = tell_gc_pause(round_stage, false, interrupts);
  show(text_timeline(round, style) + '\n');
  const auto through = tell_gc_pause(stage_for(options, folder.path(), true), true, interrupts);
  show(text_timeline(through, style) + '\n' + text_balances(round, through, style));
  if (options.json) print(json_report(options.scenario, round, through) + '\n');
  if (!options.timeline_file.empty()) {
    write_page(options.timeline_file, html_timeline(round, through));
    show(fmt::format("The same as a picture: {}\n", options.timeline_file));
  }
  if (is_as_it_must_be(round) && is_as_it_must_be(through)) return 0;
  fmt::print(stderr, "fenceguard demo: this is not what had to come out\n");
  return 1;
}

}  // namespace

int demo_main(const DemoOptions& options) {
  try {
    check(options);
    Interrupts interrupts;
    return perform(options, interrupts);
  } catch (const Interruption& interruption) {
    fmt::print(stderr, "fenceguard demo: interrupted\n");
    return 128 + interruption.signal;
  } catch (const InvalidInput& error) {
    fmt::print(stderr, "fenceguard demo: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::string line = error.what();
    std::ranges::replace_if(
        line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
    fmt::print(stderr, "fenceguard demo: {}\n", line);
    return 3;
  }
}

}  // namespace fenceguard
