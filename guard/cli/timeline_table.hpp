#pragma once

// Table: events one below the other for a terminal, a column for the time and one for each who takes part.
//
// Pure; safe to use from any thread.

#include <string>
#include <string_view>
#include <vector>

#include "guard/cli/timeline.hpp"
#include "guard/cli/timeline_words.hpp"

namespace fenceguard::demo {

struct Column {
  std::string_view title;
  std::size_t width;  // REQUIRES: 7 or more
};

// ASCII, so that a byte is a column of the terminal.
struct Cell {
  std::string text{};
  Tone tone = Tone::plain;
};

class Table {
 public:
  Table(std::vector<Column> columns, const TextStyle& style);

  // A stopped process stays a bar beside whatever the others do.
  void stop(std::size_t column, bool stopped) { stopped_[column] = stopped; }

  // REQUIRES: a cell for each column.
  void add(const std::vector<Cell>& row);

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  using Lines = std::vector<std::string>;

  void head();
  [[nodiscard]] std::string part(std::size_t column, const Lines& lines, std::size_t index, Tone tone) const;
  void end_line(std::string line);

  std::vector<Column> columns_;
  TextStyle style_;
  std::vector<bool> stopped_;
  std::string text_;
};

// The text in lines of at most so many columns, broken at spaces where there are any.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, std::size_t columns);

// The text over the whole width, with a newline behind each line.
[[nodiscard]] std::string paragraph(std::string_view text, const TextStyle& style);

// The text in the colour of its tone, where there are colours.
[[nodiscard]] std::string painted(const std::string& text, Tone tone, const TextStyle& style);

}  // namespace fenceguard::demo
