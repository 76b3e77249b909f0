#include "guard/cli/timeline_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fenceguard::demo {
namespace {

constexpr std::string_view gap = "  ";

// SGR parameters (ECMA-48).
const char* colour_of(Tone tone) {
  switch (tone) {
    case Tone::token:
      return "36";
    case Tone::pause:
      return "1;33";
    case Tone::good:
      return "1;32";
    case Tone::bad:
      return "1;31";
    case Tone::plain:
      break;
  }
  return "";
}

}  // namespace

std::vector<std::string> wrap(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  while (text.size() > columns) {
    auto cut = text.rfind(' ', columns);
    if (cut == std::string_view::npos || cut == 0) cut = columns;
    lines.emplace_back(text.substr(0, cut));
    text.remove_prefix(cut);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  if (!text.empty()) lines.emplace_back(text);
  return lines;
}

std::string paragraph(std::string_view text, const TextStyle& style) {
  std::string lines;
  for (const auto& line : wrap(text, style.columns)) lines += line + '\n';
  return lines;
}

std::string painted(const std::string& text, Tone tone, const TextStyle& style) {
  if (!style.colour || tone == Tone::plain || text.empty()) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", colour_of(tone), text);
}

Table::Table(std::vector<Column> columns, const TextStyle& style)
    : columns_{std::move(columns)}, style_{style}, stopped_(columns_.size()) {
  head();
}

void Table::head() {
  std::vector<Cell> titles;
  for (const auto& column : columns_) titles.push_back({std::string{column.title}});
  add(titles);
  std::size_t wide = gap.size() * (columns_.size() - 1);
  for (const auto& column : columns_) wide += column.width;
  for (std::size_t i = 0; i < wide; ++i) text_ += style_.unicode ? "─" : "-";
  text_ += '\n';
}

void Table::add(const std::vector<Cell>& row) {
  std::vector<Lines> cells;
  std::size_t height = 0;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    cells.push_back(wrap(row[column].text, columns_[column].width));
    height = std::max(height, cells.back().size());
  }
  for (std::size_t index = 0; index < height; ++index) {
    std::string line;
    for (std::size_t column = 0; column < columns_.size(); ++column)
      line += part(column, cells[column], index, row[column].tone);
    end_line(std::move(line));
  }
}

std::string Table::part(std::size_t column, const Lines& lines, std::size_t index, Tone tone) const {
  const std::string filler(columns_[column].width, ' ');
  if (index < lines.size()) {
    const auto& shown = lines[index];
    return painted(shown, tone, style_) + filler.substr(std::min(shown.size(), filler.size())) +
           std::string{gap};
  }
  if (!stopped_[column]) return filler + std::string{gap};
  constexpr std::size_t bar_columns = 7;
  std::string bar;
  for (std::size_t i = 0; i < bar_columns; ++i) bar += style_.unicode ? "░" : ":";
  return painted(bar, Tone::pause, style_) + filler.substr(bar_columns) + std::string{gap};
}

void Table::end_line(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text_ += line + '\n';
}

}  // namespace fenceguard::demo
