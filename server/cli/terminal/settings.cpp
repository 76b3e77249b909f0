#include "server/cli/terminal/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "guard/error.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::cli {
namespace {

namespace po = boost::program_options;
using Values = std::vector<std::string>;
using Names = std::vector<std::string_view>;

enum class Origin { flags, environment, file };

bool is_offered(const Setting& setting, Origin origin) {
  if (origin == Origin::flags) return setting.kind != Kind::secret;
  return setting.name != "config" || origin == Origin::environment;
}

po::options_description options_of(std::span<const Setting> table, Origin origin) {
  po::options_description options;
  for (const auto& setting : table) {
    if (!is_offered(setting, origin)) continue;
    const std::string name{setting.name};
    if (setting.kind == Kind::flag) {
      options.add_options()(name.c_str(), po::value<std::string>()->zero_tokens()->implicit_value("true"));
    } else if (setting.is_repeatable) {
      options.add_options()(name.c_str(), po::value<Values>());
    } else {
      options.add_options()(name.c_str(), po::value<std::string>());
    }
  }
  return options;
}

std::string unknown_flag(std::span<const Setting> table, const std::string& name) {
  const auto same = [&](const Setting& setting) { return setting.name == name; };
  if (std::any_of(table.begin(), table.end(), same)) {
    return fmt::format(
        "--{} would be seen by everybody on this machine; give it as {} or in the file of --config", name,
        variable_name(name));
  }
  return fmt::format("unknown option --{}", name);
}

po::parsed_options parse_flags(std::span<const Setting> table, const po::options_description& options,
                               const Values& arguments) {
  using namespace po::command_line_style;
  auto parsed = po::command_line_parser{arguments}
                    .options(options)
                    .style(allow_long | long_allow_adjacent | long_allow_next)
                    .allow_unregistered()
                    .run();
  for (const auto& option : parsed.options) {
    if (option.position_key != -1 || option.string_key.empty()) {
      throw InvalidInput(
          "an argument stands alone; every value follows its option, as in --storage sqlite:data.db");
    }
    if (option.unregistered) throw InvalidInput(unknown_flag(table, option.string_key));
  }
  return parsed;
}

// How many letters must be added, left out or changed to make one of the other.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// A slip in a name must not switch off what it was to switch on. What resembles no setting is not ours:
// scripts and Kubernetes set variables that begin like ours, too.
void require_known(const std::string& variable, std::string_view value, const Names& known) {
  if (value.empty()) return;
  std::string meant;
  for (const std::string_view name : known) {
    auto ours = variable_name(name);
    if (ours == variable) return;
    if (distance(ours, variable) == 1) meant = std::move(ours);
  }
  if (meant.empty()) return;
  throw InvalidInput(fmt::format(
      "the variable {} of the environment is no setting; is {} meant? Correct or unset it", variable, meant));
}

po::parsed_options parse_variables(std::span<const Setting> table, const po::options_description& options,
                                   const Names& known) {
  return po::parse_environment(options, [table, &known](const std::string& variable) -> std::string {
    if (variable.starts_with("FENCEGUARD_")) {
      const char* given = std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe): before any thread
      require_known(variable, given != nullptr ? given : "", known);
    }
    for (const auto& setting : table) {
      if (variable_name(setting.name) != variable) continue;
      const char* value = std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe): before any thread
      return value != nullptr && *value != '\0' ? std::string{setting.name} : std::string{};
    }
    return {};
  });
}

po::parsed_options parse_file(const po::options_description& options, const std::string& path,
                              std::optional<std::span<const std::string_view>> known_elsewhere) {
  std::ifstream file{path};
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw InvalidInput(fmt::format("--config: '{}' is a folder", path));
  if (!file) throw InvalidInput(fmt::format("--config: cannot read '{}'", path));
  po::parsed_options parsed{&options};
  try {
    parsed = po::parse_config_file(file, options, true);
  } catch (const po::error&) {
    throw InvalidInput(
        fmt::format("'{}' has a line that is neither 'name = value' nor a comment that begins with #", path));
  }
  if (file.bad()) throw InvalidInput(fmt::format("--config: cannot read '{}'", path));
  // As an empty variable of the environment: not given.
  std::erase_if(parsed.options, [](const auto& option) {
    return option.value.empty() || (option.value.size() == 1 && option.value.front().empty());
  });
  for (const auto& option : parsed.options) {
    if (!option.unregistered || !known_elsewhere) continue;
    if (std::ranges::find(*known_elsewhere, option.string_key) == known_elsewhere->end()) {
      throw InvalidInput(fmt::format("'{}': unknown option '{}'", path, option.string_key));
    }
  }
  return parsed;
}

// Lists come with spaces or commas where one value is all there is room for.
Values split(const Values& values) {
  Values parts;
  for (const auto& value : values) {
    std::size_t start = 0;
    while ((start = value.find_first_not_of(", ", start)) != std::string::npos) {
      const auto end = std::min(value.find_first_of(", ", start), value.size());
      parts.push_back(value.substr(start, end - start));
      start = end;
    }
  }
  return parts;
}

std::optional<bool> parse_switch(std::string_view text) {
  for (const std::string_view word : {"true", "yes", "on", "1"}) {
    if (text == word) return true;
  }
  for (const std::string_view word : {"false", "no", "off", "0"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

// Throws InvalidInput with what is wrong, never with the value.
void check(Kind kind, const std::string& value) {
  // A variable of the shell that is not set must not switch off what it was to secure.
  const bool is_never_empty = kind == Kind::file || kind == Kind::secret || kind == Kind::address;
  if (is_never_empty && value.empty())
    throw InvalidInput("it is given, and empty; leave it out where it is not meant");
  switch (kind) {
    case Kind::flag:
      if (!parse_switch(value)) throw InvalidInput("a switch is true or false");
      return;
    case Kind::number:
      if (!parse_decimal(value))
        throw InvalidInput("a whole number from 0 to 9223372036854775807 is expected");
      return;
    case Kind::token:
      if (!Token::parse(value))
        throw InvalidInput("a token is a decimal number from 1 to 9223372036854775807");
      return;
    case Kind::address:
      // Binding it reports what else is wrong with it; a URL put here by mistake must not be echoed.
      if (value.find_first_of("@?") != std::string::npos || value.find("://") != std::string::npos) {
        throw InvalidInput("an address reads HOST:PORT, [IPV6]:PORT or unix:/path");
      }
      return;
    case Kind::duration:
      static_cast<void>(parse_duration(value));
      return;
    case Kind::resource:
      static_cast<void>(Resource{value});
      return;
    case Kind::holder:
      static_cast<void>(Holder{value});
      return;
    case Kind::url:
      static_cast<void>(Url::parse(value));
      return;
    case Kind::text:
    case Kind::file:
    case Kind::secret:
      return;
  }
}

void check_all(const Setting& setting, const Values& values) {
  try {
    for (const auto& value : values) check(setting.kind, value);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--{}: {}", setting.name, error.what()));
  }
}

// Those that a flag rules out: a flag says more than what a container's environment says of another program.
std::set<std::string_view> ruled_out(std::span<const Setting> table, const po::variables_map& flags) {
  std::set<std::string_view> names;
  const auto is_flag = [&](std::string_view name) { return flags.count(std::string{name}) > 0; };
  for (const auto& setting : table) {
    for (const auto other : setting.excludes) {
      if (is_flag(setting.name) && !is_flag(other)) names.insert(other);
      if (is_flag(other) && !is_flag(setting.name)) names.insert(setting.name);
    }
  }
  return names;
}

}  // namespace

std::string variable_name(std::string_view setting) {
  std::string name = "FENCEGUARD_";
  for (const char c : setting)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

Settings Settings::read(std::span<const Setting> table, const std::vector<std::string>& arguments,
                        std::optional<std::span<const std::string_view>> known_elsewhere) {
  Settings settings;
  settings.table_.assign(table.begin(), table.end());
  const auto flags_end = std::find(arguments.begin(), arguments.end(), "--");
  if (flags_end != arguments.end()) settings.command.assign(flags_end + 1, arguments.end());

  const auto flags = options_of(table, Origin::flags);
  const auto variables = options_of(table, Origin::environment);
  const auto lines = options_of(table, Origin::file);
  po::variables_map map;
  std::set<std::string_view> excluded;
  try {
    po::store(parse_flags(table, flags, {arguments.begin(), flags_end}), map);
    excluded = ruled_out(table, map);
    Names known;
    if (known_elsewhere) known.assign(known_elsewhere->begin(), known_elsewhere->end());
    for (const auto& setting : table) known.push_back(setting.name);
    po::store(parse_variables(table, variables, known), map);
    if (map.count("config") > 0)
      po::store(parse_file(lines, map["config"].as<std::string>(), known_elsewhere), map);
  } catch (const po::error& error) {
    throw InvalidInput(error.what());
  }
  for (const auto& setting : table) {
    const auto& value = map[std::string{setting.name}];
    if (value.empty() || excluded.contains(setting.name)) {
      if (setting.is_required) throw InvalidInput(fmt::format("--{} is missing", setting.name));
      continue;
    }
    const Values values = setting.is_repeatable ? split(value.as<Values>()) : Values{value.as<std::string>()};
    check_all(setting, values);
    settings.given_.emplace(setting.name, values);
  }
  return settings;
}

const Setting& Settings::find(std::string_view name) const {
  const auto found = std::ranges::find(table_, name, &Setting::name);
  if (found == table_.end()) throw std::logic_error(fmt::format("the command has no setting '{}'", name));
  return *found;
}

bool Settings::has(std::string_view name) const noexcept {
  return std::ranges::find(table_, name, &Setting::name) != table_.end();
}

bool Settings::is_given(std::string_view name) const {
  return given_.contains(find(name).name);
}

bool Settings::is_on(std::string_view flag) const {
  return is_given(flag) && parse_switch(text(flag)).value_or(false);
}

std::string Settings::text(std::string_view name) const {
  const auto& setting = find(name);
  const auto given = given_.find(name);
  if (given == given_.end() || given->second.empty()) return std::string{setting.fallback};
  return given->second.back();
}

std::vector<std::string> Settings::list(std::string_view name) const {
  const auto given = given_.find(find(name).name);
  return given == given_.end() ? Values{} : given->second;
}

std::chrono::milliseconds Settings::duration(std::string_view name) const {
  return parse_duration(text(name));
}

std::int64_t Settings::number(std::string_view name) const {
  return parse_decimal(text(name)).value();
}

std::optional<Url> Settings::url(std::string_view name) const {
  const auto value = text(name);
  if (value.empty()) return std::nullopt;
  return Url::parse(value);
}

}  // namespace fenceguard::cli
