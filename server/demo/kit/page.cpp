#include "server/demo/kit/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/demo/kit/sequence_diagram.hpp"
#include "server/demo/kit/text.hpp"

namespace fenceguard::demo {
namespace {

// The name in a style sheet, the colour on a light ground and on a dark one.
constexpr std::array<std::array<std::string_view, 3>, 14> colours{{{"$ground", "#ffffff", "#12161c"},
                                                                   {"$ink", "#1d2430", "#e6eaf0"},
                                                                   {"$soft", "#5b6675", "#9aa6b5"},
                                                                   {"$line", "#c3cad4", "#465160"},
                                                                   {"$card", "#f4f6f9", "#1b212a"},
                                                                   {"$pill", "#dcebfa", "#123456"},
                                                                   {"$token", "#0b5fb0", "#8cc4ff"},
                                                                   {"$pause", "#8a5300", "#ffc766"},
                                                                   {"$stop", "#f0b64a", "#9a6a12"},
                                                                   {"$name", "#e3e8ef", "#313b48"},
                                                                   {"$fine", "#dff3e6", "#12351f"},
                                                                   {"$good", "#12703a", "#76d69a"},
                                                                   {"$harm", "#fde4e3", "#481818"},
                                                                   {"$bad", "#b3191c", "#ff9a95"}}};

constexpr std::string_view page_colours = R"css(
body { background: $ground; color: $ink; }
.run { background: $card; border: 1px solid $line; }
.good.balance { background: $fine; color: $good; } .bad.balance { background: $harm; color: $bad; }
)css";

constexpr std::string_view picture_colours = R"css(
text { fill: $ink; } text.token { fill: $token; } text.pause { fill: $pause; } text.good { fill: $good; }
text.bad { fill: $bad; } .time { fill: $soft; } .halo { stroke: $card; } .sheet { fill: $card; }
.life { stroke: $line; } .life-name { stroke: $name; } .value { stroke: $pill; } .value.bad { stroke: $harm; }
.badge { fill: $token; stroke: $pill; } .bar { stroke: $stop; }
.guard, .guard-dot { stroke: $good; } .guard-dot { fill: $card; } .guard-name { fill: $good; }
.arrow { stroke: $soft; } .arrow.token { stroke: $token; } .arrow.pause { stroke: $pause; }
.arrow.good { stroke: $good; } .arrow.bad, .cross { stroke: $bad; }
.tip, .dot { fill: $soft; } .tip.token { fill: $token; } .tip.pause, .dot.pause { fill: $pause; }
.tip.good { fill: $good; } .tip.bad { fill: $bad; }
)css";

constexpr std::string_view picture_style = R"css(
text { font-family: system-ui, 'DejaVu Sans', sans-serif; }
text.token, text.good, text.bad, text.pause, .badge, .value, .life-name, .guard-name { font-weight: 600; }
.time { font-variant-numeric: tabular-nums; }
.halo, .badge, .value, .life-name { paint-order: stroke; stroke-linejoin: round; }
.halo { stroke-width: .35em; } .badge, .value { stroke-width: .55em; } .life-name { stroke-width: .9em; }
.life { stroke-width: .12em; } .guard { stroke-width: .35em; } .guard-dot { stroke-width: .14em; }
.arrow { stroke-width: .12em; } .answer { stroke-dasharray: .4em .3em; }
.bar { stroke-width: 1.5em; stroke-dasharray: .22em .16em; } .cross { stroke-width: 1.6; fill: none; }
)css";

constexpr std::string_view page_style = R"css(
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1640px; padding: 24px; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 8px; } h2 { font-size: 20px; margin: 0; }
p { margin: 6px 0; max-width: 90ch; }
.runs { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 640px), 1fr)); gap: 20px;
  margin-top: 20px; align-items: start; }
.run { border-radius: 10px; padding: 16px; min-width: 0; }
svg { display: block; width: 100%; font-size: 13px; }
.balance { border-radius: 8px; padding: 10px 14px; font-size: 18px; font-weight: 600; margin: 10px 0;
  max-width: none; }
details { margin-top: 10px; } summary { cursor: pointer; } li { margin: 2px 0; }
@media (max-width: 700px) { body { padding: 6px; } .run { padding: 8px 4px; } svg { font-size: 10px; }
  .balance { font-size: 15px; } }
.run:target { position: fixed; inset: 0; border-radius: 0; padding: 16px 32px; overflow: auto; }
.run:target details { display: none; }
.run:target svg { font-size: min(28px, calc((100vh - 150px) / var(--rows))); }
)css";

std::string painted(std::string_view style, std::size_t ground) {
  std::string text{style};
  for (const auto& colour : colours)
    for (auto at = text.find(colour[0]); at != std::string::npos; at = text.find(colour[0], at))
      text.replace(at, colour[0].size(), colour[ground]);
  return text;
}

// In the colours of both grounds.
std::string both_grounds(std::string_view style) {
  return painted(style, 1) + "@media (prefers-color-scheme: dark) {" + painted(style, 2) + "}\n";
}

const char* tone_of(const Run& run) {
  return is_good(run) ? "good" : "bad";
}

std::string title_of(const Scenario& scenario, const Run& without, const Run& with) {
  return fmt::format("fenceguard demo: {}, {} and {}", scenario.name, scenario.way(without),
                     scenario.way(with));
}

std::string html_of(const Scenario& scenario, const Run& run, const std::string& id) {
  const auto diagram = sequence_diagram(scenario, run, id);
  std::string steps;
  for (const auto& event : run.events)
    steps += fmt::format("<li>{}</li>\n", escape_markup(sentence_of(event)));
  return fmt::format(
      "<section class='run' id='{0}'>\n<h2>{1}</h2>\n{2}<p class='balance {3}'>{4}</p>\n"
      "<svg height='{5:.2f}em' style='--rows: {5:.2f}' role='img' aria-labelledby='{0}title {0}desc' "
      "xmlns='http://www.w3.org/2000/svg'>\n{6}</svg>\n"
      "<details><summary>The same in words</summary><ol>\n{7}</ol></details>\n</section>\n",
      id, escape_markup(heading_of(scenario, run, false)),
      run.outcome.as_expected ? "" : "<p>This time it did not come out as it must.</p>\n", tone_of(run),
      escape_markup(run.outcome.sentence), diagram.height, diagram.body, steps);
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
      "<style>{4}{5}.heading {{ font-size: 1.3em; font-weight: 600; }}\n</style>\n"
      "<rect class='sheet' width='{0}' height='{1}'/>\n{6}{7}</svg>\n",
      slide_width, 2 * slide_height, escape_markup(title_of(scenario, without, with)),
      escape_markup(scenario.opening), picture_style, both_grounds(picture_colours),
      slide_of(scenario, without, "round", 0), slide_of(scenario, with, "through", slide_height));
}

std::string html_page(const Scenario& scenario, const Run& without, const Run& with) {
  const auto title = escape_markup(title_of(scenario, without, with));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
      "<meta name='color-scheme' content='light dark'>\n<title>{0}</title>\n"
      "<style>{1}{2}{3}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n<p>{4}</p>\n"
      "<p>Times are in milliseconds from the start of each run, measured with real processes. For a slide of "
      "one "
      "panel, put #round or #through behind the address.</p>\n"
      "<div class='runs'>\n{5}{6}</div>\n</main>\n</body>\n</html>\n",
      title, page_style, picture_style,
      both_grounds(std::string{page_colours} + std::string{picture_colours}), escape_markup(scenario.opening),
      html_of(scenario, without, "round"), html_of(scenario, with, "through"));
}

}  // namespace fenceguard::demo
