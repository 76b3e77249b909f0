#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "guard/error.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/target/open_storage.hpp"
#include "server/cli/target/open_target.hpp"
#include "server/cli/terminal/output.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {
namespace {

constexpr std::string_view word(Finding::Level level) {
  switch (level) {
    case Finding::Level::ok:
      return "ok";
    case Finding::Level::warning:
      return "warning";
    case Finding::Level::danger:
      return "danger";
  }
  return "danger";
}

void print(const std::vector<Finding>& findings, bool as_json) {
  boost::json::array array;
  std::string lines;
  for (const auto& [level, check, message] : findings) {
    if (as_json) {
      array.push_back(boost::json::object{{"level", word(level)}, {"check", check}, {"message", message}});
    } else {
      lines += fmt::format("{} {}: {}\n", word(level), check, message);
    }
  }
  if (as_json) lines = boost::json::serialize(boost::json::object{{"findings", std::move(array)}}) + "\n";
  print_out(lines);
}

// Where both are in one place, what it is like is told once.
void add_new(std::vector<Finding>& findings, std::vector<Finding> more) {
  for (auto& finding : more) {
    if (std::ranges::find(findings, finding) == findings.end()) findings.push_back(std::move(finding));
  }
}

int doctor(const Settings& settings) {
  const auto source = settings.url("source");
  const auto storage = settings.url("storage");
  if (!source && !storage) throw InvalidInput("give --source, --storage or both");
  std::vector<Finding> findings;
  if (source) findings = products().examine_source(*source);
  if (storage) {
    add_new(findings, products().examine_storage(*storage));
    if (const auto keeper = fence_keeper(settings, *storage); products().find(*storage).needs_state)
      add_new(findings, products().examine_storage(keeper));
  }
  print(findings, settings.is_on("json"));
  const bool is_in_danger = std::ranges::count(findings, Finding::Level::danger, &Finding::level) > 0;
  return is_in_danger ? exit_refused : exit_done;
}

int print_sql(std::string_view scheme) {
  print_out(products().install_sql(scheme));
  return exit_done;
}

int print_sql(std::string_view scheme, const Settings& settings) {
  if (!settings.is_on("uninstall")) return print_sql(scheme);
  print_out(products().uninstall_sql(scheme));
  return exit_done;
}

}  // namespace

Command doctor_command() {
  Setting storage = storage_setting;
  storage.help = "the storage that is protected; a guard may be running on it";
  return {.name = "doctor",
          .synopsis = "[--source URL] [--storage URL] [--state URL]",
          .summary = "check the settings that safety rests on, one line each; exit 1 on a danger",
          .settings = {source_setting, storage, state_setting, json_setting, config_setting},
          .run = doctor};
}

std::vector<Command> sql_commands() {
  static constexpr Setting uninstall{.name = "uninstall",
                                     .kind = Kind::flag,
                                     .help =
                                         "print what takes the protection off every table and then drops "
                                         "the schema with all fences and leases"};
  static constexpr Setting drop{
      .name = "uninstall",
      .kind = Kind::flag,
      .help = "print what drops the database fenceguard with all fences and leases"};
  const auto run_postgres = [](const Settings& settings) { return print_sql("postgres", settings); };
  const auto run_mariadb = [](const Settings& settings) { return print_sql("mariadb", settings); };
  const auto run_sqlite = [](const Settings&) { return print_sql("sqlite"); };
  const auto run_redis = [](const Settings&) { return print_sql("redis"); };
  return {
      {.name = "sql postgres",
       .synopsis = "[--uninstall] | psql DATABASE",
       .summary = "print the SQL that keeps the fences of a PostgreSQL database, to be installed once",
       .settings = {uninstall},
       .run = run_postgres,
       .notes = "It can be run again, and upgrades."},
      {.name = "sql mariadb",
       .synopsis = "[--uninstall] | mariadb",
       .summary = "print the SQL that keeps the fences of a MariaDB or MySQL server, to be installed once",
       .settings = {drop},
       .run = run_mariadb,
       .notes = "It can be run again, and upgrades. See docs/mariadb."},
      {.name = "sql sqlite",
       .synopsis = "",
       .summary = "print the SQL for services that keep fences in their own SQLite database",
       .settings = {},
       .run = run_sqlite},
      {.name = "sql redis",
       .synopsis = "| redis-cli -x FUNCTION LOAD REPLACE",
       .summary = "print the functions with which any client of Redis 7 guards its writes",
       .settings = {},
       .run = run_redis,
       .notes = "fenceguard_write, fenceguard_advance, fenceguard_show; see docs/redis.md."}};
}

}  // namespace fenceguard::cli
