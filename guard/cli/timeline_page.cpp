#include "guard/cli/timeline_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "guard/cli/timeline_svg.hpp"

namespace fenceguard::demo {
namespace {

constexpr std::string_view colours = R"css(
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2430; --soft: #5b6675; --line: #c3cad4;
  --card: #f4f6f9; --token: #0b5fb0; --token-ground: #dcebfa; --pause: #8a5300; --hatch: #f0b64a;
  --hatch-ground: #fdf1d8;
  --good: #12703a; --good-ground: #dff3e6; --bad: #b3191c; --bad-ground: #fde4e3; }
@media (prefers-color-scheme: dark) { :root { --ground: #12161c; --ink: #e6eaf0; --soft: #9aa6b5;
  --line: #465160; --card: #1b212a; --token: #8cc4ff; --token-ground: #123456; --pause: #ffc766;
  --hatch: #9a6a12;
  --hatch-ground: #3a2b0e; --good: #76d69a; --good-ground: #12351f; --bad: #ff9a95;
  --bad-ground: #481818; } }
)css";

constexpr std::string_view page_style = R"css(
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1640px; padding: 24px; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 8px; } h2 { font-size: 20px; margin: 0; } p { margin: 6px 0;
  max-width: 90ch; }
.runs { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 640px), 1fr));
  gap: 20px; margin-top: 20px; align-items: start; }
.run { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px;
  min-width: 0; }
.picture { overflow-x: auto; } svg { display: block; width: 100%; min-width: 600px; height: auto; }
.balance { border-radius: 8px; padding: 10px 14px; font-size: 18px; font-weight: 600; margin: 10px 0;
  max-width: none; }
.balance.good { background: var(--good-ground); color: var(--good); }
.balance.bad { background: var(--bad-ground); color: var(--bad); }
details { margin-top: 10px; } summary { cursor: pointer; } li { margin: 2px 0; }
)css";

constexpr std::string_view picture_style = R"css(
svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
svg .halo { paint-order: stroke; stroke: var(--card); stroke-width: 5px; stroke-linejoin: round; }
svg .strong { font-weight: 600; } svg .time { fill: var(--soft); font-variant-numeric: tabular-nums;
  font-size: 12px; }
svg .life { stroke: var(--line); stroke-width: 2; fill: none; }
svg .head { fill: var(--ground); stroke: var(--line); }
svg .arrow { stroke: var(--soft); stroke-width: 1.6; fill: none; } svg .answer { stroke-dasharray: 5 4; }
svg .tip { fill: var(--soft); }
svg .arrow.token { stroke: var(--token); } svg .tip.token, svg text.token { fill: var(--token); }
svg .arrow.good { stroke: var(--good); stroke-width: 2.4; }
svg .tip.good { fill: var(--good); } svg text.good { fill: var(--good); font-weight: 600; }
svg .arrow.bad { stroke: var(--bad); stroke-width: 2.4; }
svg .tip.bad { fill: var(--bad); } svg text.bad { fill: var(--bad); font-weight: 600; }
svg .badge { fill: var(--token-ground); stroke: var(--token); }
svg .badge-text { fill: var(--token); font-weight: 600; font-size: 12px; }
svg .stop { stroke: var(--pause); } svg .hatch-ground { fill: var(--hatch-ground); }
  svg .hatch-line { fill: var(--hatch); }
svg text.pause { fill: var(--pause); font-weight: 600; } svg text.note { paint-order: stroke;
  stroke: var(--card);
  stroke-width: 5px; stroke-linejoin: round; } svg .dot { fill: var(--ink); }
svg .guard { stroke: var(--good); stroke-width: 5; } svg .guard-name { fill: var(--good);
  font-weight: 600; }
svg .guard-dot { fill: var(--card); stroke: var(--good); stroke-width: 2; }
svg .mark { fill: var(--good); font-size: 12px; paint-order: stroke; stroke: var(--card);
  stroke-width: 5px; }
svg .value { fill: var(--ground); stroke: var(--line); }
  svg .value.bad, svg .alarm { fill: var(--bad-ground); stroke: var(--bad); }
svg .cross { stroke: var(--bad); stroke-width: 3; fill: none; stroke-linecap: round; }
)css";

std::string html_of(const PageSection& section) {
  std::string steps;
  for (const auto& step : section.steps) steps += fmt::format("<li>{}</li>\n", escape_markup(step));
  return fmt::format(
      "<section class='run'>\n<h2>{}</h2>\n<p>{}</p>\n<p class='balance {}'>{}</p>\n"
      "<div class='picture'>\n{}</div>\n<details><summary>The same in "
      "words</summary><ol>\n{}</ol></details>\n"
      "</section>\n",
      escape_markup(section.heading), escape_markup(section.explanation), section.is_good ? "good" : "bad",
      escape_markup(section.outcome), section.picture, steps);
}

// As its viewBox says.
struct Size {
  int width = 0;
  int height = 0;
};

Size size_of(const std::string& picture) {
  Size size;
  std::sscanf(picture.c_str(), "<svg viewBox='0 0 %d %d'", &size.width, &size.height);
  return size;
}

constexpr int margin = 20;
constexpr int heading_height = 64;

// A heading, the outcome, and the picture below them.
std::string svg_of(const PageSection& section, int y) {
  const auto [width, height] = size_of(section.picture);
  return fmt::format(
      "<text class='heading' x='{0}' y='{1}'>{2}</text>\n<text class='{3}' x='{0}' y='{4}'>{5}</text>\n"
      "<svg x='{0}' y='{6}' width='{7}' height='{8}' {9}",
      margin, y + 22, escape_markup(section.heading), section.is_good ? "good" : "bad", y + 46,
      escape_markup(section.outcome), y + heading_height, width, height,
      std::string_view{section.picture}.substr(5));
}

}  // namespace

std::string svg_page(const std::string& title, const std::string& opening, const PageSection& round,
                     const PageSection& through) {
  const auto first = size_of(round.picture);
  const auto second = size_of(through.picture);
  const int width = std::max(first.width, second.width) + 2 * margin;
  const int below = margin + heading_height + first.height;
  const int height = below + heading_height + second.height + margin;
  return fmt::format(
      "<svg viewBox='0 0 {0} {1}' width='{0}' height='{1}' role='img' aria-labelledby='title desc' "
      "xmlns='http://www.w3.org/2000/svg'>\n"
      "<title id='title'>fenceguard demo: {2}</title>\n<desc id='desc'>{3}</desc>\n"
      "<style>{4}{5}svg text.heading {{ font-size: 20px; font-weight: 600; }}\n</style>\n"
      "<rect width='{0}' height='{1}' fill='var(--card)'/>\n{6}{7}</svg>\n",
      width, height, escape_markup(title), escape_markup(opening), colours, picture_style,
      svg_of(round, margin), svg_of(through, below));
}

std::string html_page(const std::string& title, const std::string& opening, const PageSection& round,
                      const PageSection& through) {
  auto heading = title;
  heading[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(heading[0])));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
      "<title>fenceguard demo: {}</title>\n"
      "<style>{}{}{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n"
      "<p>{}</p>\n<p>Times are in milliseconds from the start of each run, measured with real "
      "processes.</p>\n"
      "<div class='runs'>\n{}{}</div>\n</main>\n</body>\n</html>\n",
      escape_markup(title), colours, page_style, picture_style, escape_markup(heading),
      escape_markup(opening), html_of(round), html_of(through));
}

}  // namespace fenceguard::demo
