#include "guard/cli/timeline_svg.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "guard/cli/timeline_words.hpp"

namespace fenceguard::demo {
namespace {

// Positions in units of the picture, which is `width` wide.
constexpr int width = 790;
constexpr int time_right = 58;
constexpr int line_a = 130;
constexpr int line_lock = 330;
constexpr int line_b = 490;
constexpr int line_storage = 714;
constexpr int guard_line = 662;
constexpr int top = 66;
constexpr int row_height = 37;

int line_of(Party party) {
  return party == Party::a ? line_a : line_b;
}

class Picture {
 public:
  Picture(const Run& run, std::string_view id) : run_{run}, id_{id}, words_{words_of(run)} {}

  std::string draw() {
    value_box(run_.initial, Tone::plain);
    for (std::size_t index = 0; index < run_.events.size(); ++index)
      draw_event(run_.events[index], words_[index]);
    if (stopped_y_) pause_bar(next_row() - row_height / 2, std::nullopt);  // never continued
    const int height = y_ + row_height + 10;
    return opening(height) + lifelines(height) + under_ + over_ + "</svg>\n";
  }

 private:
  int next_row() { return y_ += row_height; }

  void draw_event(const Event& event, const Words& words) {
    switch (event.step) {
      case Step::lock_held:
      case Step::lock_granted:
      case Step::lock_released:
        return ask_lock(event, words);
      case Step::balance_read:
      case Step::written:
        return ask_storage(event, words);
      case Step::refused:
        return refusal(event, words);
      case Step::stopped:
      case Step::continued:
      case Step::rolled_back:
        return note(event, words);
    }
  }

  void ask_lock(const Event& event, const Words& words) {
    const int client = line_of(event.who);
    const bool waited = event.ended - event.began > std::chrono::milliseconds{50};
    arrow({client, line_lock, waited ? "waits for the lock" : words.client}, Tone::plain, event.began);
    if (event.step != Step::lock_granted || !event.token) {
      arrow({line_lock, client, words.lock}, words.tone, event.ended);
      return;
    }
    arrow({line_lock, client, words.lease_ran_out ? "the old lease ran out" : "", badge_of(event)},
          words.tone, event.ended);
    if (!words.storage.empty()) guard_mark(*event.highest);
  }

  void ask_storage(const Event& event, const Words& words) {
    const int client = line_of(event.who);
    const bool is_write = event.step == Step::written;
    arrow({client, line_storage, storage_request(event, words), run_.guarded ? badge_of(event) : ""},
          Tone::plain, event.began);
    const auto tone = words.overwrote ? Tone::bad : Tone::plain;
    if (is_write && event.balance) value_box(*event.balance, tone);
    arrow({line_storage, client, is_write ? "stored" : words.storage}, tone, event.ended);
    if (words.overwrote) lost_update(event, *words.overwrote);
  }

  void refusal(const Event& event, const Words& words) {
    const int client = line_of(event.who);
    arrow({client, guard_line, storage_request(event, words), badge_of(event)}, Tone::good, event.began);
    over_ += fmt::format("<path class='cross' d='M{0} {1}l14 14m0 -14l-14 14'/>\n", guard_line - 7, y_ - 7);
    const auto token = event.token ? to_string(*event.token) : "?";
    const auto highest = event.highest ? to_string(*event.highest) : "?";
    arrow({guard_line, client,
           fmt::format("REFUSED: {}stale, token {} is below {}",
                       event.status == 0 ? "" : fmt::format("{} ", event.status), token, highest)},
          Tone::good, event.ended);
  }

  // What the client says it does; the token is on the badge.
  static std::string storage_request(const Event& event, const Words& words) {
    if (event.step == Step::balance_read || !event.balance || !event.based_on) return words.client;
    return fmt::format("writes {} + {} = {}", *event.based_on, *event.balance - *event.based_on,
                       *event.balance);
  }

  void note(const Event& event, const Words& words) {
    const int x = line_of(event.who);
    const int y = next_row();
    time(event.ended);
    if (event.step == Step::stopped) {
      stopped_y_ = y;
      stopped_at_ = event.ended;
      stopped_x_ = x;
    }
    if (event.step == Step::continued && stopped_y_) pause_bar(y, event.ended - stopped_at_);
    const std::string text =
        event.step == Step::continued ? "GOES ON (SIGCONT): believes it still holds the lock" : words.client;
    if (event.step == Step::rolled_back)
      over_ += fmt::format("<circle class='dot' cx='{}' cy='{}' r='4'/>\n", x, y);
    label(x + 20, y + 4, text, fmt::format("note {}", class_of(words.tone)), "start");
  }

  void pause_bar(int bottom, std::optional<std::chrono::microseconds> pause) {
    const int start = *stopped_y_;
    under_ += fmt::format("<rect class='stop' x='{}' y='{}' width='26' height='{}' fill='url(#{}hatch)'/>\n",
                          stopped_x_ - 13, start, bottom - start, id_);
    const auto text = pause ? fmt::format("stopped for {}", milliseconds_text(*pause)) : "stopped";
    over_ += fmt::format(
        "<text class='pause halo' text-anchor='middle' transform='translate({} {}) rotate(-90)'>{}"
        "</text>\n",
        stopped_x_ + 5, (start + bottom) / 2, text);
    stopped_y_.reset();
  }

  void lost_update(const Event& event, std::int64_t gone) {
    const int y = next_row();
    const auto text =
        fmt::format("LOST UPDATE: {} never saw the {} that it overwrote", letter(event.who), gone);
    over_ += fmt::format("<rect class='alarm' x='{}' y='{}' width='430' height='26' rx='5'/>\n",
                         line_storage - 440, y - 13);
    over_ +=
        fmt::format("<path class='cross' d='M{0} {1}l12 12m0 -12l-12 12'/>\n", line_storage - 428, y - 6);
    label(line_storage - 404, y + 4, text, "bad strong", "start");
  }

  struct Arrow {
    int from;
    int to;
    std::string text;     // above the line
    std::string badge{};  // on the line
  };

  // Draws into the next row, with its time at the left.
  void arrow(const Arrow& arrow, Tone tone, std::chrono::microseconds at) {
    const int y = next_row();
    time(at);
    const auto [from, to, text, badge_text] = arrow;
    const int direction = to > from ? 1 : -1;
    const bool is_answer = from == line_lock || from == line_storage || from == guard_line;
    under_ += fmt::format("<path class='arrow {}{}' d='M{} {}H{}'/>\n", class_of(tone),
                          is_answer ? " answer" : "", from + 3 * direction, y, to - 3 * direction);
    under_ += fmt::format("<path class='tip {}' d='M{} {}l{} -4.5v9z'/>\n", class_of(tone),
                          to - 2 * direction, y, -9 * direction);
    const int middle = (clear_of_guard(from) + clear_of_guard(to)) / 2;
    label(middle, y - (badge_text.empty() ? 6 : 13), text, fmt::format("halo {}", class_of(tone)), "middle");
    if (!badge_text.empty()) badge(middle, y, badge_text);
  }

  // Where labels end: before the guard, if there is one.
  [[nodiscard]] int clear_of_guard(int x) const { return run_.guarded && x == line_storage ? guard_line : x; }

  void time(std::chrono::microseconds at) {
    const auto text = milliseconds_text(at);
    if (text == last_time_) return;
    last_time_ = text;
    label(time_right, y_ + 4, text, "time", "end");
  }

  static std::string badge_of(const Event& event) {
    return event.token ? fmt::format("token {}", to_string(*event.token)) : "";
  }

  void label(int x, int y, std::string_view text, std::string_view classes, std::string_view anchor) {
    over_ += fmt::format("<text class='{}' x='{}' y='{}' text-anchor='{}'>{}</text>\n", classes, x, y, anchor,
                         escape_markup(text));
  }

  // A pill on the line of an arrow.
  void badge(int x, int y, const std::string& text) {
    const int half = 8 + static_cast<int>(std::ceil(3.6 * static_cast<double>(text.size())));
    over_ += fmt::format("<rect class='badge' x='{}' y='{}' width='{}' height='18' rx='9'/>\n", x - half,
                         y - 9, 2 * half);
    label(x, y + 4, text, "badge-text", "middle");
  }

  // What the guard has been advanced to.
  void guard_mark(Token highest) {
    label(guard_line - 8, y_ + 4, fmt::format("{} or higher", to_string(highest)), "mark", "end");
    over_ += fmt::format("<circle class='guard-dot' cx='{}' cy='{}' r='4'/>\n", guard_line, y_);
  }

  // What the storage holds from here on.
  void value_box(std::int64_t value, Tone tone) {
    const auto text = std::to_string(value);
    const int half = 8 + 4 * static_cast<int>(text.size());
    over_ += fmt::format("<rect class='value {}' x='{}' y='{}' width='{}' height='22' rx='4'/>\n",
                         class_of(tone), line_storage + 14, y_ - 11 + row_height / 2, 2 * half);
    label(line_storage + 14 + half, y_ + 4 + row_height / 2, text, fmt::format("strong {}", class_of(tone)),
          "middle");
  }

  [[nodiscard]] std::string opening(int height) const {
    std::string spoken;
    for (std::size_t index = 0; index < run_.events.size(); ++index)
      spoken += sentence_of(run_.events[index], words_[index]) + ' ';
    const auto title = run_.guarded ? "Through the guard" : "Round the guard";
    return fmt::format(
        "<svg viewBox='0 0 {0} {1}' role='img' aria-labelledby='{2}title {2}desc' "
        "xmlns='http://www.w3.org/2000/svg'>\n"
        "<title id='{2}title'>{3}: {4}</title>\n<desc id='{2}desc'>{5}</desc>\n"
        "<defs><pattern id='{2}hatch' width='8' height='8' patternUnits='userSpaceOnUse' "
        "patternTransform='rotate(45)'><rect class='hatch-ground' width='8' height='8'/>"
        "<rect class='hatch-line' width='3' height='8'/></pattern></defs>\n",
        width, height, id_, title, escape_markup(balance_sentence(run_)), escape_markup(spoken));
  }

  [[nodiscard]] std::string lifelines(int height) const {
    std::string text;
    const auto line = [&](int x, const char* name) {
      text += fmt::format("<path class='life' d='M{} 40V{}'/>\n", x, height - 10);
      text += fmt::format("<rect class='head' x='{}' y='12' width='104' height='28' rx='6'/>\n", x - 52);
      text += fmt::format("<text class='strong' x='{}' y='31' text-anchor='middle'>{}</text>\n", x, name);
    };
    line(line_a, "client A");
    line(line_lock, "lock service");
    line(line_b, "client B");
    line(line_storage, "storage");
    if (!run_.guarded) return text;
    text += fmt::format("<path class='guard' d='M{} 52V{}'/>\n", guard_line, height - 10);
    text += fmt::format("<text class='guard-name' x='{}' y='62' text-anchor='end'>guard</text>\n",
                        guard_line - 8);
    return text;
  }

  const Run& run_;
  std::string_view id_;
  std::vector<Words> words_;
  int y_ = top;
  std::string under_;  // lines and bars
  std::string over_;   // text and badges, above all lines
  std::string last_time_;
  std::optional<int> stopped_y_;
  std::chrono::microseconds stopped_at_{};
  int stopped_x_ = 0;
};

}  // namespace

std::string svg_picture(const Run& run, std::string_view id) {
  return Picture{run, id}.draw();
}

std::string escape_markup(std::string_view text) {
  std::string escaped;
  for (const char byte : text) {
    switch (byte) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += byte;
    }
  }
  return escaped;
}

}  // namespace fenceguard::demo
