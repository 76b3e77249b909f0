#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "guard/cli/timeline.hpp"
#include "guard/cli/timeline_words.hpp"

namespace fenceguard::demo {
namespace {

enum Lane : std::size_t { lane_time, lane_a, lane_b, lane_lock, lane_storage, lane_count };

constexpr std::array<std::size_t, lane_count> lane_columns{7, 24, 24, 17, 19};
constexpr std::string_view gap = "  ";

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

std::string painted(const std::string& text, Tone tone, const TextStyle& style) {
  if (!style.colour || tone == Tone::plain || text.empty()) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", colour_of(tone), text);
}

struct Cell {
  std::vector<std::string> lines;  // ASCII, so that a byte is a column
  Tone tone = Tone::plain;
};

using Row = std::array<Cell, lane_count>;

class Table {
 public:
  explicit Table(const TextStyle& style) : style_{style} {}

  void head() {
    constexpr std::array<std::string_view, lane_count> titles{"time", "client A", "client B", "lock",
                                                              "storage"};
    std::string line;
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      line += fmt::format("{:{}}{}", titles[lane], lane_columns[lane], gap);
    end_line(std::move(line));
    std::size_t columns = gap.size() * (lane_count - 1);
    for (const auto lane : lane_columns) columns += lane;
    for (std::size_t column = 0; column < columns; ++column) text_ += style_.unicode ? "─" : "-";
    text_ += '\n';
  }

  void stop(Lane lane, bool stopped) { stopped_[lane] = stopped; }

  void add(const Row& row) {
    std::size_t height = 0;
    for (const auto& cell : row) height = std::max(height, cell.lines.size());
    for (std::size_t index = 0; index < height; ++index) {
      std::string line;
      for (std::size_t lane = 0; lane < lane_count; ++lane) line += part(row, lane, index);
      end_line(std::move(line));
    }
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string part(const Row& row, std::size_t lane, std::size_t index) const {
    const auto& cell = row[lane];
    const std::string filler(lane_columns[lane], ' ');
    if (index < cell.lines.size()) {
      const auto& shown = cell.lines[index];
      return painted(shown, cell.tone, style_) + filler.substr(std::min(shown.size(), filler.size())) +
             std::string{gap};
    }
    if (!stopped_[lane]) return filler + std::string{gap};
    // A stopped process stays a bar beside whatever the others do.
    constexpr std::size_t bar_columns = 7;
    std::string bar;
    for (std::size_t column = 0; column < bar_columns; ++column) bar += style_.unicode ? "░" : ":";
    return painted(bar, Tone::pause, style_) + filler.substr(bar_columns) + std::string{gap};
  }

  void end_line(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    text_ += line + '\n';
  }

  TextStyle style_;
  std::array<bool, lane_count> stopped_{};
  std::string text_;
};

Row row_of(const Event& event, const Words& words) {
  const Lane client = event.who == Party::a ? lane_a : lane_b;
  Row row;
  const auto put = [&row](Lane lane, const std::string& text, Tone tone) {
    row[lane] = {wrap(text, lane_columns[lane]), tone};
  };
  put(lane_time, fmt::format("{:>{}}", milliseconds_text(event.ended), lane_columns[lane_time]), Tone::plain);
  put(client, words.client, words.tone == Tone::pause ? Tone::pause : Tone::plain);
  put(lane_lock, words.lock, words.tone);
  put(lane_storage, words.storage, words.tone);
  return row;
}

std::string heading(const Run& run) {
  if (run.direct)
    return run.guarded
               ? "2. THROUGH THE GUARD: every write carries its token, and its own transaction judges it"
               : "1. ROUND THE GUARD: the same lock, but the clients write without their tokens";
  return run.guarded ? "2. THROUGH THE GUARD: every write carries its token, and the guard judges it"
                     : "1. ROUND THE GUARD: the same lock, but the clients write straight into the storage";
}

std::string paragraph(const std::string& text) {
  std::string lines;
  for (const auto& line : wrap(text, text_columns_max)) lines += line + '\n';
  return lines;
}

}  // namespace

std::string text_opening(const Run& run, const TextStyle& /*style*/) {
  return paragraph(fmt::format(
      "Clients A and B share the account {}, which holds {}, and one lock for it. A adds {}, B adds {}: in "
      "the "
      "end it must hold {}. A is stopped in the middle of its work, as a long garbage collection would stop "
      "it, "
      "until its lease of {} on the lock has run out.",
      run.resource, run.initial, run.add_a, run.add_b, run.expected(), milliseconds_text(run.ttl)));
}

std::string text_timeline(const Run& run, const TextStyle& style) {
  const auto words = words_of(run);
  Table table{style};
  table.head();
  for (std::size_t index = 0; index < run.events.size(); ++index) {
    const auto& event = run.events[index];
    const Lane client = event.who == Party::a ? lane_a : lane_b;
    if (event.step == Step::continued) table.stop(client, false);
    table.add(row_of(event, words[index]));
    if (event.step == Step::stopped) table.stop(client, true);
  }
  const auto tone = loss(run) == Loss::none ? Tone::good : Tone::bad;
  return paragraph(heading(run)) + '\n' + table.take() +
         fmt::format("\n   The account holds {}.\n", painted(balance_sentence(run), tone, style));
}

std::string text_balances(const Run& round, const Run& through, const TextStyle& style) {
  const auto line = [&](const char* way, const Run& run) {
    const auto tone = loss(run) == Loss::none ? Tone::good : Tone::bad;
    return fmt::format("  {:19}{}\n", way, painted(balance_sentence(run), tone, style));
  };
  return "The balance in the end, read from the storage:\n" + line("round the guard:", round) +
         line("through the guard:", through);
}

}  // namespace fenceguard::demo
