#include "demo/kit/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <map>
#include <vector>

#include "demo/kit/sequence_diagram.hpp"
#include "demo/kit/text.hpp"
#include "server/control/watch/console_page.hpp"

namespace fenceguard {
extern const std::string_view console_css;
extern const std::string_view picture_css;
}  // namespace fenceguard

namespace fenceguard::demo {
namespace {

namespace json = boost::json;

// What the page calls its colours: on a light ground, then on a dark one.
std::map<std::string, std::vector<std::string>> colours() {
  std::map<std::string, std::vector<std::string>> found;
  for (auto at = console_css.find("--"); at != console_css.npos; at = console_css.find("--", at + 2)) {
    const auto colon = console_css.find(": #", at);
    const auto name = console_css.substr(at, colon - at);
    if (colon == console_css.npos || name.find_first_of(");") != name.npos) continue;
    const auto value = console_css.substr(colon + 2, console_css.find(';', colon) - colon - 2);
    found[fmt::format("var({})", name)].emplace_back(value);
  }
  return found;
}

// For a picture that stands alone: not every program that shows it knows variables.
std::string painted(std::size_t ground) {
  std::string text{picture_css};
  for (const auto& [name, values] : colours())
    for (auto at = text.find(name); at != std::string::npos; at = text.find(name, at))
      text.replace(at, name.size(), values.at(ground));
  return text;
}

const char* tone_of(const Run& run) {
  return is_good(run) ? "good" : "bad";
}

std::string title_of(const Scenario& scenario, const Run& without, const Run& with) {
  return fmt::format("fenceguard demo: {}, {} and {}", scenario.name, scenario.way(without),
                     scenario.way(with));
}

// What the page shows of a run.
json::object recording_of(const Scenario& scenario, const Run& run, const std::string& id) {
  const auto diagram = sequence_diagram(scenario, run, id);
  auto recording = json_of(run);
  for (std::size_t i = 0; i < run.events.size(); ++i)
    recording["events"].as_array()[i].as_object()["words"] = sentence_of(run.events[i]);
  recording["heading"] = heading_of(scenario, run, false);
  recording["tone"] = tone_of(run);
  recording["rows"] = diagram.height;
  recording["picture"] = fmt::format(
      "<svg height='{0:.2f}em' role='img' aria-labelledby='{1}title {1}desc' "
      "xmlns='http://www.w3.org/2000/svg'>\n"
      "{2}</svg>",
      diagram.height, id, diagram.body);
  return recording;
}

constexpr int slide_width = 1920, slide_height = 1080;

// A heading, the outcome, and the diagram below them, on a slide.
std::string slide_of(const Scenario& scenario, const Run& run, const std::string& id, int y) {
  constexpr double below_heading = 4.4;
  constexpr double font_max = 27;
  const auto diagram = sequence_diagram(scenario, run, id, below_heading);
  return fmt::format(
      "<svg x='0' y='{0}' width='{1}' height='{2}' font-size='{3:.2f}px'>\n"
      "<text class='heading' x='1%' y='1.7em'>{4}: {5}</text>\n<text class='{6}' x='1%' "
      "y='3.6em'>{7}</text>\n{8}</svg>\n",
      y, slide_width, slide_height, std::min(font_max, slide_height / (diagram.height + 0.5)), scenario.name,
      escape_markup(heading_of(scenario, run, false)), tone_of(run), escape_markup(run.outcome.sentence),
      diagram.body);
}

}  // namespace

std::string svg_page(const Scenario& scenario, const Run& without, const Run& with) {
  return fmt::format(
      "<svg viewBox='0 0 {0} {1}' width='{0}' height='{1}' role='img' aria-labelledby='title desc' "
      "xmlns='http://www.w3.org/2000/svg'>\n"
      "<title id='title'>{2}</title>\n<desc id='desc'>{3}</desc>\n"
      "<style>{4}@media (prefers-color-scheme: dark) {{\n{5}}}\n.heading {{ font-size: 1.3em; font-weight: "
      "600; }}\n"
      "</style>\n"
      "<rect class='sheet' width='{0}' height='{1}'/>\n{6}{7}</svg>\n",
      slide_width, 2 * slide_height, escape_markup(title_of(scenario, without, with)),
      escape_markup(scenario.opening), painted(0), painted(1), slide_of(scenario, without, "round", 0),
      slide_of(scenario, with, "through", slide_height));
}

std::string html_page(const Scenario& scenario, const Run& without, const Run& with) {
  return recorded_page(json::serialize(json::object{{"title", title_of(scenario, without, with)},
                                                    {"opening", scenario.opening},
                                                    {"round", recording_of(scenario, without, "round")},
                                                    {"through", recording_of(scenario, with, "through")}}));
}

}  // namespace fenceguard::demo
