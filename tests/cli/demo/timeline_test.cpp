// The runs of a scenario as text, as a page, as a picture and as JSON, made from runs that are written down
// here.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "demo/kit/page.hpp"
#include "demo/kit/sequence_diagram.hpp"
#include "demo/kit/text.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;
using testing::Not;

Scenario scenario() {
  return {.name = "gc-pause",
          .summary = "a client is paused",
          .opening = "Clients A and B share the account accounts/42.",
          .lanes = {"client A", "locks", "client B", "storage"},
          .run = {},
          .way_without = "round the guard",
          .way_with = "through the guard"};
}

// Puts a run together, each event 2 ms after the one before.
class Record {
 public:
  explicit Record(bool guarded) {
    run.guarded = guarded;
    run.initial = 100;
  }

  Event& add(Event event) {
    now += microseconds{2000};
    event.began = event.at = now;
    run.events.push_back(std::move(event));
    return run.events.back();
  }

  void take(const std::string& lane, std::int64_t token) {
    auto& event = add({.actor = lane, .what = "takes the lock (500 ms)", .target = "locks"});
    event.answer = "token " + std::to_string(token) + " for " + lane.back();
    event.token = event.fence = Token{token};
    event.tone = Tone::token;
  }

  Event& write(const std::string& lane, std::int64_t token, const std::string& answer) {
    auto& event =
        add({.actor = lane, .what = "writes 100 + 50 = 150", .target = "storage", .answer = answer});
    event.token = Token{token};
    event.details = {{"event", "written"}};
    return event;
  }

  // A takes the lock and is paused; B does its work; A goes on.
  void until_a_goes_on() {
    take("client A", 1);
    add({.actor = "client A",
         .what = "STOPPED by SIGSTOP",
         .tone = Tone::pause,
         .pause = Event::Pause::begins});
    take("client B", 2);
    write("client B", 2, "130 is stored").stored = 130;
    add({.actor = "client A",
         .what = "GOES ON after 600 ms",
         .tone = Tone::pause,
         .pause = Event::Pause::ends});
  }

  Run run;
  microseconds now{};
};

Run without_guard() {
  Record record{false};
  record.until_a_goes_on();
  auto& write = record.write("client A", 1, "150 is stored, and the 130 there is gone");
  write.tone = Tone::bad;
  write.stored = 150;
  record.run.outcome = {true, "150, should be 180: B's +30 is LOST", {{"token_a", "1"}}, {{"final", 150}}};
  return record.run;
}

Run with_guard() {
  Record record{true};
  record.until_a_goes_on();
  record.write("client A", 1, "REFUSED as stale: token 1 is below 2").tone = Tone::good;
  record.take("client A", 3);
  record.run.outcome = {true, "180: both updates survive", {}, {}};
  return record.run;
}

// The columns that a line takes on the terminal: escape sequences take none, a UTF-8 character one.
std::size_t columns_of(const std::string& line) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b')
      at = line.find('m', at);
    else if ((static_cast<unsigned char>(line[at]) & 0xC0) != 0x80)
      ++columns;
  }
  return columns;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream{text};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

std::string whole_text(const Run& run, const TextStyle& style) {
  return text_opening(scenario(), style) + text_run(scenario(), run, style) +
         text_outcomes(scenario(), run, run, style);
}

TEST(Text, NoLineIsWiderThanTheLimit) {
  for (auto run : {without_guard(), with_guard()}) {
    for (auto& event : run.events) {
      if (event.token) event.token = Token{9223372036854775000 + event.token->value()};
      event.at += std::chrono::seconds{10};
    }
    for (const TextStyle style : {TextStyle{false, false}, TextStyle{true, true}, TextStyle{false, false, 60},
                                  TextStyle{true, true, 61}, TextStyle{false, true, 80}}) {
      for (const auto& line : lines_of(whole_text(run, style)))
        EXPECT_LE(columns_of(line), style.columns) << line;
    }
  }
}

TEST(Text, ColourAndUnicodeOnlyWhereTheyAreWanted) {
  const auto is_plain = [](const std::string& text) {
    return std::ranges::all_of(text, [](char byte) { return byte == '\n' || (byte >= ' ' && byte <= '~'); });
  };
  EXPECT_TRUE(is_plain(whole_text(with_guard(), {})));
  EXPECT_THAT(whole_text(with_guard(), {.colour = true, .unicode = false}), HasSubstr("\x1b["));
  EXPECT_THAT(whole_text(with_guard(), {.colour = false, .unicode = true}), Not(HasSubstr("\x1b[")));
}

TEST(Text, ShowsTokensThePauseTheGuardAndTheRefusal) {
  const auto text = whole_text(with_guard(), {});
  for (const auto* part :
       {"2. THROUGH THE GUARD", "token 1", "token 3 for A", "STOPPED", ":::::", "guard: 2 or higher",
        "REFUSED as stale:", "through the guard: 180: both updates survive"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Text, ThePauseBarLastsUntilTheProcessGoesOn) {
  const auto lines = lines_of(text_run(scenario(), without_guard(), {}));
  const auto has_bar = [](const std::string& line) { return line.find("::::") != std::string::npos; };
  EXPECT_GE(std::ranges::count_if(lines, has_bar), 2);
  const auto resumed =
      std::ranges::find_if(lines, [](const auto& line) { return line.find("GOES ON") != line.npos; });
  ASSERT_NE(resumed, lines.end());
  EXPECT_TRUE(std::none_of(resumed, lines.end(), has_bar));
}

TEST(HtmlPage, IsOnePageThatLoadsNothing) {
  const auto page = html_page(scenario(), without_guard(), with_guard());
  for (const auto* foreign : {" src=", "href=\"h", "url(http", "@import", "<link", "<img", "<iframe"})
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(page, Not(HasSubstr("connect-src")));
  for (const auto* part : {"\\u003csvg ", "\\u003c/svg>", "\\u003ctitle id=", "\\u003cdesc id="})
    EXPECT_EQ(occurrences(page, part), 2);
}

TEST(HtmlPage, AnUnexpectedRunIsNotPresentedAsExpected) {
  auto run = with_guard();
  run.outcome.as_expected = false;
  const auto page = html_page(scenario(), without_guard(), run);
  EXPECT_EQ(occurrences(page, R"("as_it_must_be":false)"), 1);
  EXPECT_EQ(occurrences(page, R"("tone":"good")"), 0);
}

TEST(HtmlPage, WhatComesFromOutsideIsEscaped) {
  auto story = scenario();
  story.opening = "a</script><script>&'\"";
  EXPECT_THAT(html_page(story, without_guard(), with_guard()), Not(HasSubstr("a</script>")));
  EXPECT_EQ(escape_markup("<a b='c' d=\"e\">&"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;");
}

TEST(SvgPage, HasASlideForEachRunAndLoadsNothing) {
  const auto picture = svg_page(scenario(), without_guard(), with_guard());
  EXPECT_TRUE(picture.starts_with("<svg viewBox='0 0 1920 2160'"));
  EXPECT_TRUE(picture.ends_with("</svg>\n"));
  EXPECT_EQ(occurrences(picture, "<svg "), 3);
  EXPECT_EQ(occurrences(picture, "width='1920' height='1080'"), 2);
  for (const auto* foreign : {"<script", "<html", "href=", "url(http", "@import", "width: 100%", "var("})
    EXPECT_THAT(picture, Not(HasSubstr(foreign)));
}

TEST(SequenceDiagram, ARefusedArrowStopsAtTheGuardsLine) {
  const auto with = sequence_diagram(scenario(), with_guard(), "x").body;
  EXPECT_EQ(occurrences(with, "url(#xcross"), 1);
  EXPECT_THAT(with, testing::ContainsRegex("x2='84.0%'[^>]*url\\(#xcross"));
  EXPECT_THAT(with, HasSubstr("class='guard'"));
  EXPECT_THAT(with, HasSubstr("2 or higher"));
  const auto without = sequence_diagram(scenario(), without_guard(), "x").body;
  EXPECT_THAT(without, Not(HasSubstr("url(#xcross")));
  EXPECT_THAT(without, Not(HasSubstr("class='guard'")));
}

TEST(SequenceDiagram, APauseIsABarAndTheAccountHasItsBalances) {
  const auto body = sequence_diagram(scenario(), without_guard(), "x").body;
  EXPECT_EQ(occurrences(body, "class='bar'"), 1);
  EXPECT_EQ(occurrences(body, "class='value "), 3);
  EXPECT_THAT(body, HasSubstr("class='value bad'"));
}

TEST(SequenceDiagram, ALongTokenIsShownByItsLastDigits) {
  EXPECT_EQ(shorten_numbers("token 9223372036854775807 for A"), "token ..5807 for A");
  EXPECT_EQ(shorten_numbers("writes 100 + 50 = 150, 12345678"), "writes 100 + 50 = 150, 12345678");
  EXPECT_EQ(shorten_numbers("lock-0000000001"), "lock-..0001");
  EXPECT_EQ(shorten_numbers(""), "");
}

TEST(SequenceDiagram, ARunThatBrokeOffStillMakesAPicture) {
  auto run = with_guard();
  while (!run.events.empty()) {
    run.events.pop_back();
    EXPECT_GT(sequence_diagram(scenario(), run, "x").height, 0);
    EXPECT_FALSE(text_run(scenario(), run, {}).empty());
  }
}

TEST(JsonReport, HasEventsFactsAndDetails) {
  const auto report = json_report(scenario(), without_guard(), with_guard());
  for (const auto* part : {R"("token":"3")", R"("final":150)", R"("facts":{"token_a":"1"})",
                           R"("event":"written")", R"("as_it_must_be":true)"})
    EXPECT_THAT(report, HasSubstr(part));
}

}  // namespace
}  // namespace fenceguard::demo
