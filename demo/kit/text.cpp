#include "demo/kit/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cctype>

namespace fenceguard::demo {
namespace {

namespace json = boost::json;

constexpr std::size_t time_columns = 8;
constexpr std::string_view gap = "  ";

// SGR parameters (ECMA-48), by tone.
constexpr std::array<const char*, 5> colours{"", "36", "1;33", "1;32", "1;31"};

std::string painted(const std::string& text, Tone tone, const TextStyle& style) {
  if (!style.colour || tone == Tone::plain || text.empty()) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", colours.at(static_cast<std::size_t>(tone)), text);
}

std::string repeated(std::string_view piece, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += piece;
  return text;
}

// ASCII, so that a byte is a column of the terminal.
struct Cell {
  std::string text{};
  Tone tone = Tone::plain;
};

class Table {
 public:
  Table(const Scenario& scenario, const TextStyle& style)
      : lanes_{scenario.lanes}, style_{style}, is_paused_(lanes_.size() + 1), widths_{time_columns} {
    // The columns of the clients and of the storage, the last lane, are wider: there is more to say there.
    const auto share_of = [&](std::string_view lane) {
      return lane.starts_with("client") || lane == lanes_.back() ? 4U : 3U;
    };
    std::size_t shares = 0;
    for (const auto lane : lanes_) shares += share_of(lane);
    const auto width = style.columns - time_columns - lanes_.size() * gap.size();
    for (const auto lane : lanes_) widths_.push_back(width * share_of(lane) / shares);
    std::vector<Cell> titles{{"time"}};
    for (const auto lane : lanes_) titles.push_back({std::string{lane}});
    add_row(titles);
    text_ += repeated(style_.unicode ? "─" : "-", style.columns) + '\n';
  }

  void add(const Event& event) {
    std::vector<Cell> row(widths_.size());
    row[0].text = fmt::format("{:>{}}", milliseconds_text(event.at), time_columns);
    const auto actor = column_of(event.actor);
    if (event.pause == Event::Pause::ends) is_paused_.at(actor) = false;
    row.at(actor) = {request_of(event), event.is_call() ? Tone::plain : event.tone};
    if (event.is_call()) row.at(column_of(event.target)) = {event.answer, event.tone};
    if (event.fence && row.back().text.empty())
      row.back() = {fmt::format("guard: {} or higher", to_string(*event.fence)), Tone::token};
    add_row(row);
    if (event.pause == Event::Pause::begins) is_paused_.at(actor) = true;
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  [[nodiscard]] std::size_t column_of(const std::string& lane) const {
    return static_cast<std::size_t>(std::ranges::find(lanes_, lane) - lanes_.begin()) + 1;
  }

  void add_row(const std::vector<Cell>& row) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 0;
    for (std::size_t column = 0; column < row.size(); ++column) {
      cells.push_back(wrap(row[column].text, widths_[column]));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t index = 0; index < height; ++index) {
      std::string line;
      for (std::size_t column = 0; column < row.size(); ++column)
        line += part(column, index < cells[column].size() ? cells[column][index] : "", row[column].tone);
      line.erase(line.find_last_not_of(' ') + 1);
      text_ += line + '\n';
    }
  }

  // A paused client stays a bar beside whatever the others do.
  [[nodiscard]] std::string part(std::size_t column, const std::string& shown, Tone tone) const {
    constexpr std::size_t bar_columns = 7;
    const auto rest = [&](std::size_t used) {
      return std::string(widths_[column] - std::min(used, widths_[column]), ' ') + std::string{gap};
    };
    if (shown.empty() && is_paused_[column])
      return painted(repeated(style_.unicode ? "░" : ":", bar_columns), Tone::pause, style_) +
             rest(bar_columns);
    return painted(shown, tone, style_) + rest(shown.size());
  }

  const std::vector<std::string_view>& lanes_;
  TextStyle style_;
  std::vector<bool> is_paused_;
  std::vector<std::size_t> widths_;
  std::string text_;
};

json::object object_of(const Event& event) {
  json::object object{{"at_us", event.at.count()},
                      {"began_us", event.began.count()},
                      {"ended_us", event.at.count()},
                      {"who", event.actor},
                      {"what", event.what}};
  if (event.is_call()) object.insert({{"where", event.target}, {"answer", event.answer}});
  if (event.token) object["token"] = to_string(*event.token);
  for (const auto& member : event.details) object[member.key()] = member.value();
  return object;
}

}  // namespace

std::string milliseconds_text(std::chrono::microseconds time) {
  return fmt::format("{} ms", std::chrono::round<std::chrono::milliseconds>(time).count());
}

std::string ttl_text(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? fmt::format("{} s", time.count() / 1000)
                                  : fmt::format("{} ms", time.count());
}

std::string balance_sentence(std::int64_t balance, std::int64_t expected, std::string_view lost) {
  if (balance == expected) return fmt::format("the account holds {}: nothing is lost", balance);
  return fmt::format("the account holds {}, should be {}: {} is LOST", balance, expected, lost);
}

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

std::string heading_of(const Scenario& scenario, const Run& run, bool is_upper) {
  std::string way{scenario.way(run)};
  const auto last = is_upper ? way.end() : way.begin() + 1;
  std::transform(way.begin(), last, way.begin(), [](unsigned char c) { return std::toupper(c); });
  return fmt::format("{}. {}", run.guarded ? 2 : 1, way);
}

std::string request_of(const Event& event) {
  if (!event.token || !event.what.starts_with("writes")) return event.what;
  return fmt::format("{}, token {}", event.what, to_string(*event.token));
}

std::string sentence_of(const Event& event) {
  auto sentence = fmt::format("{}: {} {}", milliseconds_text(event.at), event.actor, request_of(event));
  if (event.is_call()) sentence += fmt::format("; {}: {}", event.target, event.answer);
  return sentence + '.';
}

bool is_good(const Run& run) {
  return run.guarded && run.outcome.as_expected;
}

std::string text_opening(const Scenario& scenario, const TextStyle& style) {
  return fmt::format("{}\n", fmt::join(wrap(scenario.opening, style.columns), "\n"));
}

std::string text_run(const Scenario& scenario, const Run& run, const TextStyle& style) {
  Table table{scenario, style};
  for (const auto& event : run.events) table.add(event);
  std::string outcome;
  for (const auto& line : wrap(run.outcome.sentence, style.columns - 3))
    outcome += fmt::format("   {}\n", painted(line, is_good(run) ? Tone::good : Tone::bad, style));
  return fmt::format("{}\n\n{}\n{}", heading_of(scenario, run, true), table.text(), outcome);
}

std::string text_outcomes(const Scenario& scenario, const Run& without, const Run& with,
                          const TextStyle& style) {
  std::string text = "What came of it:\n";
  const auto width = std::max(scenario.way_without.size(), scenario.way_with.size()) + 2;
  for (const auto* run : {&without, &with}) {
    auto way = fmt::format("{}:", scenario.way(*run));
    for (const auto& line : wrap(run->outcome.sentence, style.columns - width - 2)) {
      text += fmt::format("  {:{}}{}\n", way, width,
                          painted(line, is_good(*run) ? Tone::good : Tone::bad, style));
      way.clear();
    }
  }
  return text;
}

json::object json_of(const Run& run) {
  json::array events;
  for (const auto& event : run.events) events.emplace_back(object_of(event));
  json::object facts;
  for (const auto& [name, value] : run.outcome.facts) facts[name] = value.text;
  json::object object{{"as_it_must_be", run.outcome.as_expected},
                      {"outcome", run.outcome.sentence},
                      {"facts", std::move(facts)},
                      {"events", std::move(events)}};
  for (const auto& member : run.outcome.details) object[member.key()] = member.value();
  return object;
}

std::string json_report(const Scenario& scenario, const Run& without, const Run& with) {
  return json::serialize(
      json::object{{"scenario", json::string{scenario.name.data(), scenario.name.size()}},
                   {"as_it_must_be", without.outcome.as_expected && with.outcome.as_expected},
                   {"round", json_of(without)},
                   {"through", json_of(with)}});
}

}  // namespace fenceguard::demo
