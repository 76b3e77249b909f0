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
#include "guard/cli/demo_stage.hpp"
#include "guard/cli/demo_story.hpp"
#include "guard/cli/demo_tale.hpp"
#include "guard/cli/output.hpp"
#include "guard/cli/timeline.hpp"
#include "guard/cli/timeline_page.hpp"
#include "guard/error.hpp"

namespace fenceguard {
namespace {

using namespace demo;

constexpr std::string_view gc_pause = "gc-pause";
// As --storage: a plain HTTP storage of the demonstration's own.
constexpr std::string_view own_http = "http";

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

bool is_svg(const std::string& file) {
  return std::filesystem::path{file}.extension() == ".svg";
}

// Before the story is told, so that nobody waits for a page that cannot be written.
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

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Unavailable("the output cannot be written");
}

std::optional<Demonstration> find_tale(std::string_view name) {
  for (auto& tale : schemes().demonstrations())
    if (tale.name == name) return tale;
  return std::nullopt;
}

Url parse_storage(const std::string& text) {
  try {
    return Url::parse(text);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--storage: {}", error.what()));
  }
}

// What is asked for must be there before anything is started.
void check(const DemoOptions& options) {
  if (!options.timeline_file.empty()) require_writable(options.timeline_file);
  if (options.scenario != gc_pause) {
    if (!find_tale(options.scenario))
      throw InvalidInput(
          fmt::format("there is no story '{}'; there are:\n{}", options.scenario, demo_list()));
    if (options.storage.empty() && options.source.empty()) return;
    throw InvalidInput(
        fmt::format("the story '{}' starts the servers that it needs; it takes no --storage and no --source",
                    options.scenario));
  }
  if (!options.source.empty()) (void)schemes().find(Url::parse(options.source));
  if (options.storage.empty() || options.storage == own_http) return;
  const auto url = parse_storage(options.storage);
  if (const auto& scheme = schemes().find(url); !scheme.open_unguarded && !scheme.open_direct)
    throw InvalidInput(fmt::format(
        "--storage: the demonstration also writes round the guard, and a {}: storage offers no way for that",
        url.scheme));
}

// A storage that knows nothing of tokens; dies with its owner.
class OwnStorage {
 public:
  OwnStorage(Interrupts& interrupts, const std::string& folder)
      : child_{interrupts,
               {.arguments = {"demo-actor", "delayed-packet", "storage"},
                .environment = {},
                .log_file = folder + "/storage.log"}},
        url_{"http://" + child_.receive_line()} {}

  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  Child child_;
  std::string url_;
};

// Where one run of gc-pause takes place.
GcPauseStage stage_for(const DemoOptions& options, const std::string& folder, bool guarded) {
  const char* way = guarded ? "through" : "round";
  GcPauseStage stage;
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
    const auto& scheme = schemes().find(Url::parse(stage.storage));
    if (scheme.open_direct) stage.place = "fenceguard_demo_" + suffix;
    if (scheme.needs_state) {
      stage.state = fmt::format("sqlite:{}/{}-state.db", folder, way);
      stage.initialise = true;
    }
  }
  return stage;
}

// Shows pieces of text as the telling goes on, and in the end the whole of it in the other forms.
class Output {
 public:
  explicit Output(const DemoOptions& options) : options_{options} {}

  void show(const std::string& text) const {
    if (!options_.json) print(text);
  }

  // report(): JSON. page(form): that page. Returns the exit status.
  template <class Report, class Page>
  [[nodiscard]] int finish(bool is_as_it_must_be, const Report& report, const Page& page) const {
    if (options_.json) print(report() + '\n');
    if (!options_.timeline_file.empty()) {
      write_page(options_.timeline_file, page(is_svg(options_.timeline_file) ? svg_page : html_page));
      show(fmt::format("The same as a picture: {}\n", options_.timeline_file));
    }
    if (is_as_it_must_be) return 0;
    cli::complain("demo: this is not what had to come out");
    return 1;
  }

 private:
  const DemoOptions& options_;
};

int perform_gc_pause(const DemoOptions& options, const std::string& folder, Interrupts& interrupts) {
  const auto style = style_of_stdout();
  const Output output{options};
  const auto round_stage = stage_for(options, folder, false);
  Run opening;
  opening.resource = round_stage.resource;
  output.show(text_opening(opening, style) + '\n');
  const auto round = tell_gc_pause(round_stage, false, interrupts);
  output.show(text_timeline(round, style) + '\n');
  const auto through = tell_gc_pause(stage_for(options, folder, true), true, interrupts);
  output.show(text_timeline(through, style) + '\n' + text_balances(round, through, style));
  return output.finish(
      is_as_it_must_be(round) && is_as_it_must_be(through),
      [&] { return json_report(options.scenario, round, through); },
      [&](PageForm form) { return timeline_page(form, round, through); });
}

Telling tell(const Demonstration& tale, bool guarded, const std::string& folder, Interrupts& interrupts) {
  TaleStage stage{interrupts, fmt::format("{}/{}", folder, guarded ? "through" : "round")};
  Telling telling;
  telling.guarded = guarded;
  telling.end = tale.tell(stage, guarded);
  telling.events = stage.take_events();
  return telling;
}

int perform_tale(const Demonstration& tale, const DemoOptions& options, const std::string& folder,
                 Interrupts& interrupts) {
  const auto style = style_of_stdout();
  const Output output{options};
  output.show(tale_opening(tale, style) + '\n');
  const auto round = tell(tale, false, folder, interrupts);
  output.show(tale_text(tale, round, style) + '\n');
  const auto through = tell(tale, true, folder, interrupts);
  output.show(tale_text(tale, through, style) + '\n' + tale_outcomes(round, through, style));
  return output.finish(
      round.end.is_as_it_must_be && through.end.is_as_it_must_be,
      [&] { return tale_report(tale, round, through); },
      [&](PageForm form) { return tale_page(form, tale, round, through); });
}

int perform(const DemoOptions& options, Interrupts& interrupts) {
  const TempFolder folder;
  if (options.scenario == gc_pause && options.storage == own_http) {
    const OwnStorage storage{interrupts, folder.path()};
    auto on_it = options;
    on_it.storage = storage.url();
    return perform_gc_pause(on_it, folder.path(), interrupts);
  }
  if (options.scenario == gc_pause) return perform_gc_pause(options, folder.path(), interrupts);
  return perform_tale(*find_tale(options.scenario), options, folder.path(), interrupts);
}

}  // namespace

std::string demo_list() {
  constexpr auto line = "  {:<17}{}\n";
  auto text = fmt::format(line, gc_pause, "a client is stopped for longer than its lease lasts, then writes");
  for (const auto& tale : schemes().demonstrations()) text += fmt::format(line, tale.name, tale.summary);
  return text;
}

int demo_main(const DemoOptions& options) {
  try {
    check(options);
    Interrupts interrupts;
    return perform(options, interrupts);
  } catch (const Interruption& interruption) {
    cli::complain("demo: interrupted");
    return 128 + interruption.signal;
  } catch (const InvalidInput& error) {
    // The list of stories has several lines.
    std::fputs(fmt::format("fenceguard: demo: {}\n", error.what()).c_str(), stderr);
    return 2;
  } catch (const std::exception& error) {
    cli::complain(fmt::format("demo: {}", error.what()));
    return 3;
  }
}

int demo_actor_main(const std::vector<std::string>& words) {
  try {
    const auto tale = words.empty() ? std::nullopt : find_tale(words.front());
    if (!tale || !tale->act) throw InvalidInput("an actor of a demonstration is started by it alone");
    tale->act({words.begin() + 1, words.end()});
    return 0;
  } catch (const std::exception& error) {
    cli::complain(fmt::format("demo-actor: {}", error.what()));
    return 3;
  }
}

}  // namespace fenceguard
