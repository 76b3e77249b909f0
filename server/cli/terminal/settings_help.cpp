#include <fmt/format.h>

#include <algorithm>

#include "server/cli/terminal/output.hpp"
#include "server/cli/terminal/settings.hpp"

namespace fenceguard::cli {
namespace {

constexpr std::size_t help_column = 30;

std::string explanation(const Setting& setting) {
  std::string text{setting.help};
  if (setting.kind == Kind::secret)
    text += fmt::format(" (only as {} or in the file)", variable_name(setting.name));
  if (setting.is_repeatable) text += " (may be given several times)";
  if (setting.is_required) text += " (required)";
  if (!setting.fallback.empty()) text += fmt::format(" [default: {}]", setting.fallback);
  return text;
}

}  // namespace

std::string wrapped(std::string_view text, std::string_view indent) {
  std::string result;
  std::size_t column = indent.size();
  const auto line_max = output_columns();
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!result.empty() && column + 1 + word.size() > line_max) {
      result += fmt::format("\n{}", indent);
      column = indent.size();
    } else if (!result.empty()) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

std::string describe(std::span<const Setting> table) {
  std::string lines;
  for (const auto& setting : table) {
    const auto left = setting.kind == Kind::secret
                          ? fmt::format("  {}", variable_name(setting.name))
                          : fmt::format("  --{}{}{}", setting.name, setting.placeholder.empty() ? "" : " ",
                                        setting.placeholder);
    const std::string indent(help_column, ' ');
    const auto gap = left.size() < help_column ? std::string(help_column - left.size(), ' ') : "\n" + indent;
    lines += fmt::format("{}{}{}\n", left, gap, wrapped(explanation(setting), indent));
  }
  return lines;
}

std::string example_configuration(std::span<const Setting> table) {
  std::string lines =
      "# Every line is an option of the command line without its dashes. A flag overrides an environment\n"
      "# variable (FENCEGUARD_LISTEN for listen), which overrides this file.\n";
  for (const auto& setting : table) {
    if (setting.name == "config" || setting.name == "example-config") continue;
    const std::string_view value = setting.kind == Kind::flag ? "false" : setting.fallback;
    lines += fmt::format("\n# {}\n#{} ={}{}\n", wrapped(setting.help, "# "), setting.name,
                         value.empty() ? "" : " ", value);
  }
  return lines;
}

}  // namespace fenceguard::cli
