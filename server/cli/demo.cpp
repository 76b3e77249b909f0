#include "server/demo/demo.hpp"
#include "server/cli/command.hpp"
#include "server/cli/target/open_target.hpp"

namespace fenceguard::cli {
namespace {

int demo(const Settings& settings) {
  return demo_main({.scenario = settings.text("scenario"),
                    .storage = settings.text("storage"),
                    .source = settings.text("source"),
                    .timeline_file = settings.text("timeline"),
                    .json = settings.is_on("json")});
}

}  // namespace

Command demo_command() {
  const Setting scenario{
      .name = "scenario", .placeholder = "NAME", .fallback = "gc-pause", .help = "the scenario that is run"};
  const Setting timeline{.name = "timeline",
                         .placeholder = "FILE",
                         .help = "write the same as a page (FILE.html) or as a picture (FILE.svg)"};
  Setting storage = storage_setting;
  // Not a URL: the bare word http lets the demonstration start a storage of its own.
  storage.kind = Kind::text;
  storage.help =
      "the storage to show it on, or http for a plain HTTP storage of its own; left out, a fresh one in a "
      "temporary folder";
  Setting source = source_setting;
  source.help = "the token source; left out, the storage's own";
  return {.name = "demo",
          .synopsis = "[SCENARIO] [--storage URL] [--source URL] [--timeline FILE.html|FILE.svg] [--json]",
          .summary = "show a stale client being refused, with real processes",
          .settings = {scenario, storage, source, timeline, json_setting, config_setting},
          .run = demo,
          .listing = "Scenarios:\n" + demo_list(),
          .leading_setting = "scenario"};
}

}  // namespace fenceguard::cli
