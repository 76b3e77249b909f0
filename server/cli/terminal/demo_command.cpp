#include "server/cli/terminal/demo_command.hpp"

#include "server/cli/terminal/common_settings.hpp"

namespace fenceguard::cli {

Command demo_description() {
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
  const Setting via{.name = "via",
                    .placeholder = "WAY",
                    .fallback = "direct",
                    .help =
                        "redis: and postgres: storage: direct, or sidecar: the clients are redis-cli or "
                        "psql, through the guard"};
  return {
      .name = "demo",
      .synopsis =
          "[SCENARIO] [--storage URL] [--source URL] [--via WAY] [--timeline FILE.html|FILE.svg] [--json]",
      .summary = "show a stale client being refused, with real processes",
      .settings = {scenario, storage, source, via, timeline, json_setting, config_setting},
      .leading_setting = "scenario"};
}

}  // namespace fenceguard::cli
