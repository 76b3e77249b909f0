#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "guard/cli/demo_tale.hpp"
#include "guard/cli/timeline_svg.hpp"
#include "guard/cli/timeline_table.hpp"
#include "guard/cli/timeline_words.hpp"

namespace fenceguard::demo {
namespace {

// Positions in units of the picture.
constexpr int time_right = 62;
constexpr int lane_width = 220;
constexpr int first_lane = 175;
constexpr int line_height = 17;
constexpr int row_gap = 18;
constexpr std::size_t label_columns = 30;  // of text, beside its neighbours

class Picture {
 public:
  Picture(const Demonstration& story, const Telling& telling, const std::string& id)
      : story_{story}, telling_{telling}, id_{id} {}

  std::string draw() {
    for (const auto& event : telling_.events) draw_event(event);
    return opening() + lifelines() + rows_ + "</svg>\n";
  }

 private:
  [[nodiscard]] int line_of(const std::string& lane) const {
    const auto index = std::ranges::find(story_.lanes, lane) - story_.lanes.begin();
    return first_lane + static_cast<int>(index) * lane_width;
  }

  void draw_event(const TaleEvent& event) {
    const bool is_asked = !event.where.empty();
    rows_ += fmt::format("<text class='time' x='{}' y='{}' text-anchor='end'>{}</text>\n", time_right, y_,
                         milliseconds_text(event.at));
    const int from = line_of(event.who);
    auto lines = label(from, event.what, is_asked ? Tone::plain : event.tone);
    if (is_asked) {
      const int to = line_of(event.where);
      arrow(from, to, event.tone);
      lines = std::max(lines, label(to, event.answer, event.tone));
    }
    y_ += static_cast<int>(lines) * line_height + row_gap;
  }

  std::size_t label(int x, const std::string& text, Tone tone) {
    const auto lines = wrap(text, label_columns);
    int y = y_;
    for (const auto& line : lines) {
      rows_ += fmt::format("<text class='halo {}' x='{}' y='{}' text-anchor='middle'>{}</text>\n",
                           class_of(tone), x, y, escape_markup(line));
      y += line_height;
    }
    return lines.size();
  }

  // Above the words of its row.
  void arrow(int from, int to, Tone tone) {
    const int y = y_ - line_height + 2;
    const int tip = to > from ? to - 2 : to + 2;
    const int back = to > from ? tip - 9 : tip + 9;
    rows_ += fmt::format("<path class='arrow {}' d='M{} {}H{}'/>\n", class_of(tone), from, y, tip);
    rows_ += fmt::format("<path class='tip {}' d='M{} {}L{} {}L{} {}Z'/>\n", class_of(tone), tip, y, back,
                         y - 4, back, y + 4);
  }

  [[nodiscard]] std::string opening() const {
    std::string spoken;
    for (const auto& event : telling_.events) spoken += fmt::format("{} {}. ", event.who, event.what);
    const auto width = first_lane + static_cast<int>(story_.lanes.size() - 1) * lane_width + 115;
    return fmt::format(
        "<svg viewBox='0 0 {0} {1}' role='img' aria-labelledby='{2}title {2}desc' "
        "xmlns='http://www.w3.org/2000/svg'>\n"
        "<title id='{2}title'>{3}</title>\n<desc id='{2}desc'>{4}</desc>\n",
        width, y_ + 10, id_, escape_markup(telling_.end.outcome), escape_markup(spoken));
  }

  [[nodiscard]] std::string lifelines() const {
    std::string text;
    for (const auto lane : story_.lanes) {
      const int x = line_of(std::string{lane});
      text += fmt::format("<path class='life' d='M{} 40V{}'/>\n", x, y_);
      text += fmt::format("<rect class='head' x='{}' y='12' width='116' height='28' rx='6'/>\n", x - 58);
      text += fmt::format("<text class='strong' x='{}' y='31' text-anchor='middle'>{}</text>\n", x,
                          escape_markup(lane));
    }
    return text;
  }

  const Demonstration& story_;
  const Telling& telling_;
  const std::string& id_;
  int y_ = 76;
  std::string rows_;
};

}  // namespace

std::string tale_picture(const Demonstration& story, const Telling& telling, const std::string& id) {
  return Picture{story, telling, id}.draw();
}

}  // namespace fenceguard::demo
