#include "demo/kit/sequence_diagram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "demo/kit/text.hpp"

namespace fenceguard::demo {
namespace {

// Across, in percent of the width.
constexpr double first_lane = 17, last_lane = 90, guard_gap = 6, left_edge = 13, right_edge = 100;
constexpr double character = 1.8;            // on the narrowest screen, 360 px
constexpr double beside = 1, bar_gap = 1.5;  // between a line, or a bar, and its label
// Down, in em.
constexpr double head = 1.7, first_row = 3.3, line_height = 1.2, arrow_below = 0.45, row_gap = 0.75;

constexpr std::array<const char*, 5> tone_names{"plain", "token", "pause", "good", "bad"};

const char* name_of(Tone tone) {
  return tone_names.at(static_cast<std::size_t>(tone));
}

// Where a label stands, and its lines.
struct Label {
  double x;
  const char* anchor;
  std::vector<std::string> lines;
};

// To the right of left, or to the left of right, wherever it fits.
Label label_along(double left, double right, const std::string& text) {
  const double width = static_cast<double>(text.size()) * character;
  const double after = right_edge - left - beside;
  const double before = right - beside - left_edge;
  const bool is_after = width <= after || after >= before;
  const auto columns = static_cast<std::size_t>((is_after ? after : before) / character);
  if (is_after) return {left + beside, "start", wrap(text, columns)};
  return {right - beside, "end", wrap(text, columns)};
}

// Over a line from left to right: in its middle where it fits, else along it from either end.
Label label_over(double left, double right, const std::string& text) {
  const double width = static_cast<double>(text.size()) * character;
  const double middle = (left + right) / 2;
  if (middle - width / 2 >= left_edge && middle + width / 2 <= right_edge) return {middle, "middle", {text}};
  return label_along(left, right, text);
}

class Picture {
 public:
  Picture(const Scenario& scenario, const Run& run, const std::string& id, double top)
      : scenario_{scenario}, run_{run}, id_{id}, top_{top}, y_{top + first_row} {}

  Diagram draw() {
    if (run_.initial) note_stored(*run_.initial, Tone::plain);
    for (const auto& event : run_.events) {
      time(event);
      if (event.is_call())
        call(event);
      else
        note(event);
      if (event.fence) note_fence(*event.fence, event.target == scenario_.lanes.back());
    }
    for (const auto& [lane, since] : paused_) bar(x_of(lane), since, y_);
    return {opening() + lifelines() + under_ + over_, y_ + 0.5};
  }

 private:
  [[nodiscard]] double x_of(const std::string& lane) const {
    const auto index = std::ranges::find(scenario_.lanes, lane) - scenario_.lanes.begin();
    return first_lane + (last_lane - first_lane) * static_cast<double>(index) /
                            static_cast<double>(scenario_.lanes.size() - 1);
  }
  [[nodiscard]] bool is_guarded(const std::string& lane) const {
    return scenario_.has_guard_line(run_) && lane == scenario_.lanes.back();
  }

  void time(const Event& event) {
    text("time", {0.5, "start", {milliseconds_text(event.began)}}, y_ + line_height);
  }

  void call(const Event& event) {
    const double from = x_of(event.actor);
    const bool is_stopped = event.is_refused() && is_guarded(event.target);
    const double to = is_stopped ? last_lane - guard_gap : x_of(event.target);
    const bool has_badge = event.token && !event.answer.starts_with("token");
    arrow({.from = from,
           .to = to,
           .text = event.what,
           .badge = has_badge ? "token " + to_string(*event.token) : ""},
          event.is_refused() ? event.tone : Tone::plain, event.is_refused() ? "cross" : "tip");
    if (event.stored) note_stored(*event.stored, event.tone);
    arrow({.from = to, .to = from, .text = event.answer, .is_answer = true}, event.tone, "tip");
  }

  void note(const Event& event) {
    const double x = x_of(event.actor);
    const auto label = label_along(x + bar_gap, x - bar_gap, shorten_numbers(request_of(event)));
    y_ += line_height;
    const double line = y_ - 0.3;
    if (event.pause == Event::Pause::begins) paused_[event.actor] = line;
    if (event.pause == Event::Pause::ends && paused_.contains(event.actor)) {
      bar(x, paused_[event.actor], line);
      paused_.erase(event.actor);
    }
    over_ += fmt::format("<circle class='dot {}' cx='{:.1f}%' cy='{:.2f}em' r='.28em'/>\n",
                         name_of(event.tone), x, line);
    text(fmt::format("halo {}", name_of(event.tone)), label, y_);
    if (event.stored) note_stored(*event.stored, event.tone);
    y_ += static_cast<double>(label.lines.size() - 1) * line_height + row_gap;
  }

  struct Arrow {
    double from;
    double to;
    std::string text;
    std::string badge{};
    bool is_answer = false;
  };

  void arrow(const Arrow& arrow, Tone tone, const char* end) {
    const auto what = shorten_numbers(arrow.text);
    auto badge = shorten_numbers(arrow.badge);
    std::ranges::replace(badge, ' ', '_');  // it stays in one piece
    const auto whole = badge.empty() ? what : what + "  " + badge;
    const double left = std::min(arrow.from, arrow.to);
    const bool is_behind_guard =
        scenario_.has_guard_line(run_) && std::max(arrow.from, arrow.to) == last_lane;
    const double right = is_behind_guard ? last_lane - guard_gap : std::max(arrow.from, arrow.to);
    auto label = label_over(left, right, whole);
    const auto lines = label.lines.size();
    y_ += line_height;
    auto& last = label.lines.back();
    const bool has_badge = !badge.empty() && last.ends_with(badge);
    if (has_badge) last.erase(last.size() - badge.size());
    last.erase(last.find_last_not_of(' ') + 1);
    std::ranges::replace(badge, '_', ' ');
    text(fmt::format("halo {}", name_of(tone)), label, y_, has_badge ? badge : "");
    y_ += static_cast<double>(lines - 1) * line_height;
    const double line = y_ + arrow_below;
    under_ += fmt::format(
        "<line class='arrow {0}{1}' x1='{2:.1f}%' x2='{3:.1f}%' y1='{4:.2f}em' y2='{4:.2f}em' "
        "marker-end='url(#{5}{6}{0})'/>\n",
        name_of(tone), arrow.is_answer ? " answer" : "", arrow.from, arrow.to, line, id_, end);
    y_ = line + row_gap - arrow_below;
  }

  void bar(double x, double from, double to) {
    under_ += fmt::format("<line class='bar' x1='{0:.1f}%' x2='{0:.1f}%' y1='{1:.2f}em' y2='{2:.2f}em'/>\n",
                          x, from, to);
  }

  // What the guard requires from here on, at its line.
  void note_fence(Token fence, bool is_crossed) {
    if (!scenario_.has_guard_line(run_) || fence_ == fence) return;
    fence_ = fence;
    // Below the arrows that cross the line there.
    if (is_crossed) y_ += line_height;
    const double y = y_ - row_gap;
    over_ += fmt::format("<circle class='guard-dot' cx='{:.1f}%' cy='{:.2f}em' r='.3em'/>\n",
                         last_lane - guard_gap, y);
    text("halo guard-name",
         {last_lane - guard_gap - beside, "end", {shorten_numbers(to_string(fence)) + " or higher"}},
         y + 0.35);
  }

  // What the account holds from here on.
  void note_stored(std::int64_t balance, Tone tone) {
    text(fmt::format("value {}", name_of(tone)), {last_lane + 2.2, "start", {std::to_string(balance)}},
         y_ + 0.2);
  }

  void text(std::string_view classes, const Label& label, double y, const std::string& badge = "") {
    for (std::size_t i = 0; i < label.lines.size(); ++i, y += line_height) {
      const auto pill = badge.empty() || i + 1 < label.lines.size()
                            ? std::string{}
                            : fmt::format("<tspan class='badge' dx='.8em'>{}</tspan>", escape_markup(badge));
      over_ += fmt::format("<text class='{}' x='{:.1f}%' y='{:.2f}em' text-anchor='{}'>{}{}</text>\n",
                           classes, label.x, y, label.anchor, escape_markup(label.lines[i]), pill);
    }
  }

  [[nodiscard]] std::string opening() const {
    std::string spoken;
    for (const auto& event : run_.events) spoken += sentence_of(event) + ' ';
    auto text = fmt::format("<title id='{0}title'>{1}: {2}</title>\n<desc id='{0}desc'>{3}</desc>\n<defs>\n",
                            id_, escape_markup(scenario_.way(run_)), escape_markup(run_.outcome.sentence),
                            escape_markup(spoken));
    for (const auto* tone : tone_names) {
      text += fmt::format(
          "<marker id='{0}tip{1}' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='6' markerHeight='6' "
          "orient='auto'><path class='tip {1}' d='M0 0L8 4L0 8Z'/></marker>\n"
          "<marker id='{0}cross{1}' viewBox='0 0 8 8' refX='4' refY='4' markerWidth='8' markerHeight='8'>"
          "<path class='cross' d='M1 1L7 7M7 1L1 7'/></marker>\n",
          id_, tone);
    }
    return text + "</defs>\n";
  }

  [[nodiscard]] std::string lifelines() const {
    std::string text;
    const auto line = [&](const char* classes, double x, std::string_view name, double from) {
      text += fmt::format("<line class='{0}' x1='{1:.1f}%' x2='{1:.1f}%' y1='{2:.2f}em' y2='{3:.2f}em'/>\n",
                          classes, x, from, y_);
      text += fmt::format("<text class='{0}-name' x='{1:.1f}%' y='{2:.2f}em' text-anchor='{3}'>{4}</text>\n",
                          classes, classes == std::string_view{"guard"} ? x - beside : x,
                          classes == std::string_view{"guard"} ? from + 0.8 : top_ + head,
                          classes == std::string_view{"guard"} ? "end" : "middle", escape_markup(name));
    };
    for (const auto lane : scenario_.lanes) line("life", x_of(std::string{lane}), lane, top_ + head + 0.6);
    if (scenario_.has_guard_line(run_)) line("guard", last_lane - guard_gap, "guard", top_ + head + 0.9);
    return text;
  }

  const Scenario& scenario_;
  const Run& run_;
  const std::string& id_;
  double top_;
  double y_;
  std::string under_;                     // lines and bars
  std::string over_;                      // labels, above all lines
  std::map<std::string, double> paused_;  // since where, by lane
  std::optional<Token> fence_;
};

}  // namespace

Diagram sequence_diagram(const Scenario& scenario, const Run& run, const std::string& id, double top) {
  return Picture{scenario, run, id, top}.draw();
}

std::string shorten_numbers(std::string_view text) {
  constexpr std::size_t digits_max = 8, digits_shown = 4;
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find_first_not_of("0123456789", at), text.size());
    if (end - at > digits_max)
      shown.append("..").append(text.substr(end - digits_shown, digits_shown));
    else
      shown.append(text.substr(at, std::max(end, at + 1) - at));
    at = std::max(end, at + 1);
  }
  return shown;
}

std::string escape_markup(std::string_view text) {
  constexpr std::string_view marks = "&<>\"'";
  constexpr std::array<const char*, marks.size()> names{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::string escaped;
  for (const char byte : text) {
    const auto mark = marks.find(byte);
    if (mark == marks.npos)
      escaped += byte;
    else
      escaped += names[mark];
  }
  return escaped;
}

}  // namespace fenceguard::demo
