#include "guard/cli/demo_tale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "guard/cli/timeline_page.hpp"
#include "guard/cli/timeline_table.hpp"

namespace fenceguard::demo {
namespace {

namespace json = boost::json;

constexpr std::size_t time_columns = 8;
constexpr std::size_t gap_columns = 2;

json::string text_of(std::string_view text) {
  return json::string{text.data(), text.size()};
}

std::string heading_of(const Telling& telling) {
  return telling.guarded ? "2. WITH THE GUARD" : "1. WITHOUT THE GUARD";
}

std::size_t lane_of(const Demonstration& story, const std::string& name) {
  return static_cast<std::size_t>(std::ranges::find(story.lanes, name) - story.lanes.begin());
}

Tone outcome_tone(const Telling& telling) {
  return telling.guarded && telling.end.is_as_it_must_be ? Tone::good : Tone::bad;
}

std::string sentence_of(const TaleEvent& event) {
  auto sentence = fmt::format("{}: {} {}", milliseconds_text(event.at), event.who, event.what);
  if (!event.where.empty()) sentence += fmt::format("; {}: {}", event.where, event.answer);
  return sentence + '.';
}

json::object object_of(const TaleEvent& event) {
  json::object object{{"at_us", event.at.count()}, {"who", event.who}, {"what", event.what}};
  if (!event.where.empty()) {
    object["where"] = event.where;
    object["answer"] = event.answer;
  }
  if (event.token) object["token"] = to_string(*event.token);
  return object;
}

json::object object_of(const Telling& telling) {
  json::array events;
  for (const auto& event : telling.events) events.push_back(object_of(event));
  json::object facts;
  for (const auto& [name, value] : telling.end.facts) facts[name] = value;
  return {{"as_it_must_be", telling.end.is_as_it_must_be},
          {"outcome", telling.end.outcome},
          {"facts", std::move(facts)},
          {"events", std::move(events)}};
}

PageSection section_of(const Demonstration& story, const Telling& telling, const std::string& id) {
  PageSection section;
  section.heading = telling.guarded ? "2. With the guard" : "1. Without the guard";
  section.outcome = telling.end.outcome;
  section.is_good = outcome_tone(telling) == Tone::good;
  section.picture = tale_picture(story, telling, id);
  for (const auto& event : telling.events) section.steps.push_back(sentence_of(event));
  return section;
}

}  // namespace

std::string tale_opening(const Demonstration& story, const TextStyle& style) {
  return paragraph(story.opening, style);
}

std::string tale_text(const Demonstration& story, const Telling& telling, const TextStyle& style) {
  std::vector<Column> columns{{"time", time_columns}};
  const auto width = (style.columns - time_columns) / story.lanes.size() - gap_columns;
  for (const auto lane : story.lanes) columns.push_back({lane, width});
  Table table{std::move(columns), style};
  for (const auto& event : telling.events) {
    std::vector<Cell> row(story.lanes.size() + 1);
    row[0].text = fmt::format("{:>{}}", milliseconds_text(event.at), time_columns);
    const bool is_asked = !event.where.empty();
    row.at(lane_of(story, event.who) + 1) = {event.what, is_asked ? Tone::plain : event.tone};
    if (is_asked) row.at(lane_of(story, event.where) + 1) = {event.answer, event.tone};
    table.add(row);
  }
  std::string outcome;
  for (const auto& line : wrap(telling.end.outcome, style.columns - 3))
    outcome += fmt::format("   {}\n", painted(line, outcome_tone(telling), style));
  return heading_of(telling) + "\n\n" + table.take() + '\n' + outcome;
}

std::string tale_outcomes(const Telling& round, const Telling& through, const TextStyle& style) {
  std::string text = "What came of it:\n";
  for (const auto* telling : {&round, &through}) {
    std::string_view way = telling->guarded ? "with the guard:" : "without the guard:";
    for (const auto& line : wrap(telling->end.outcome, style.columns - 21)) {
      text += fmt::format("  {:19}{}\n", way, painted(line, outcome_tone(*telling), style));
      way = {};
    }
  }
  return text;
}

std::string tale_page(PageForm form, const Demonstration& story, const Telling& round,
                      const Telling& through) {
  return form(fmt::format("{}, without the guard and with it", story.name), std::string{story.opening},
              section_of(story, round, "round"), section_of(story, through, "through"));
}

std::string tale_report(const Demonstration& story, const Telling& round, const Telling& through) {
  return json::serialize(
      json::object{{"scenario", text_of(story.name)},
                   {"as_it_must_be", round.end.is_as_it_must_be && through.end.is_as_it_must_be},
                   {"round", object_of(round)},
                   {"through", object_of(through)}});
}

}  // namespace fenceguard::demo
