// The timeline of a run as text, as a page and as JSON, made from runs that are written down here.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "guard/cli/demo_messages.hpp"
#include "guard/cli/timeline.hpp"
#include "guard/cli/timeline_svg.hpp"
#include "guard/cli/timeline_words.hpp"
#include "guard/error.hpp"

namespace fenceguard::demo {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;
using testing::Not;

// Puts a run together, one event per call, each 2 ms after the one before and 1 ms long.
class Told {
 public:
  explicit Told(bool guarded) {
    run.guarded = guarded;
    run.resource = "accounts/42";
  }

  Event& add(Step step, Party who) {
    Event event;
    event.step = step;
    event.who = who;
    event.began = now + microseconds{1000};
    event.ended = now + microseconds{2000};
    now += microseconds{2000};
    run.events.push_back(event);
    return run.events.back();
  }

  void grant(Party who, std::int64_t token) {
    auto& event = add(Step::lock_granted, who);
    event.token = Token{token};
    event.highest = Token{token};
    event.status = 201;
  }

  void read(Party who, std::int64_t balance) { add(Step::balance_read, who).balance = balance; }

  Event& write(Step step, Party who, std::int64_t token, std::int64_t balance) {
    auto& event = add(step, who);
    event.token = Token{token};
    event.balance = balance;
    event.based_on = balance - (who == Party::a ? run.add_a : run.add_b);
    return event;
  }

  // A takes the lock and is stopped; B does its work; A goes on.
  void until_a_goes_on() {
    grant(Party::a, 1);
    read(Party::a, 100);
    add(Step::stopped, Party::a);
    add(Step::lock_held, Party::b);
    now += microseconds{490'000};
    grant(Party::b, 2);
    read(Party::b, 100);
    write(Step::written, Party::b, 2, 130);
    add(Step::lock_released, Party::b);
    now += microseconds{100'000};
    add(Step::continued, Party::a);
  }

  Run run;
  microseconds now{};
};

Run round_the_guard() {
  Told told{false};
  told.until_a_goes_on();
  told.write(Step::written, Party::a, 1, 150);
  told.run.final_balance = 150;
  return told.run;
}

Run through_the_guard() {
  Told told{true};
  told.until_a_goes_on();
  auto& refusal = told.write(Step::refused, Party::a, 1, 150);
  refusal.highest = Token{2};
  refusal.status = 412;
  told.add(Step::rolled_back, Party::a).balance = 150;
  told.grant(Party::a, 3);
  told.read(Party::a, 130);
  told.write(Step::written, Party::a, 3, 180);
  told.add(Step::lock_released, Party::a);
  told.run.final_balance = 180;
  return told.run;
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

TEST(Run, TheStoryRoundTheGuardMustLoseTheUpdateOfB) {
  const auto run = round_the_guard();
  EXPECT_TRUE(is_as_it_must_be(run));
  EXPECT_EQ(loss(run), Loss::b);
  EXPECT_EQ(balance_sentence(run), "150, should be 180: B's +30 is LOST");
}

TEST(Run, TheStoryThroughTheGuardMustKeepBothUpdates) {
  const auto run = through_the_guard();
  EXPECT_TRUE(is_as_it_must_be(run));
  EXPECT_EQ(balance_sentence(run), "180: both updates survive");
}

TEST(Run, AnotherBalanceIsNotAsItMustBe) {
  for (auto run : {round_the_guard(), through_the_guard()}) {
    for (const std::int64_t balance : {0, 100, 130, 150, 180, 200}) {
      run.final_balance = balance;
      EXPECT_EQ(is_as_it_must_be(run), balance == (run.guarded ? 180 : 150)) << balance;
    }
    run.final_balance.reset();
    EXPECT_FALSE(is_as_it_must_be(run));
  }
}

TEST(Run, APauseWithinTheLeaseIsNotAsItMustBe) {
  auto run = through_the_guard();
  run.ttl = std::chrono::seconds{5};
  EXPECT_FALSE(is_as_it_must_be(run));
}

TEST(Run, WithoutAnyOneOfItsTurnsTheStoryIsNotAsItMustBe) {
  const auto whole = through_the_guard();
  for (const Step step : {Step::stopped, Step::continued, Step::refused, Step::rolled_back, Step::written}) {
    auto run = whole;
    std::erase_if(run.events, [&](const Event& event) { return event.step == step; });
    EXPECT_FALSE(is_as_it_must_be(run)) << to_string(step);
  }
}

TEST(Run, ARetryUnderTheSameTokenIsNotAsItMustBe) {
  auto run = through_the_guard();
  for (auto& event : run.events)
    if (event.token == Token{3}) event.token = Token{1};
  EXPECT_FALSE(is_as_it_must_be(run));
}

TEST(Words, AGrantAfterAnUnreleasedOneSaysWhoseLeaseRanOut) {
  const auto words = words_of(round_the_guard());
  EXPECT_FALSE(words.at(0).lease_ran_out);
  EXPECT_TRUE(words.at(4).lease_ran_out);
  EXPECT_THAT(words.at(4).lock, HasSubstr("A's lease ran out"));
  EXPECT_THAT(words.at(3).lock, HasSubstr("A holds it"));
}

TEST(Words, AWriteOverABalanceThatWasNotReadIsNamed) {
  const auto words = words_of(round_the_guard());
  EXPECT_EQ(words.back().overwrote, 130);
  EXPECT_EQ(words.back().tone, Tone::bad);
  const auto guarded = words_of(through_the_guard());
  EXPECT_TRUE(std::ranges::none_of(guarded, [](const Words& each) { return each.overwrote.has_value(); }));
}

TEST(TextTimeline, NoLineIsWiderThanTheLimit) {
  for (auto run : {round_the_guard(), through_the_guard()}) {
    for (auto& event : run.events) {
      if (event.token) event.token = Token{9223372036854775000 + event.token->value()};
      if (event.highest) event.highest = Token{9223372036854775000 + event.highest->value()};
      event.ended += std::chrono::seconds{10};
    }
    for (const TextStyle style : {TextStyle{false, false}, TextStyle{true, true}, TextStyle{false, false, 60},
                                  TextStyle{true, true, 61}, TextStyle{false, true, 80}}) {
      const auto text = text_opening(run, style) + text_timeline(run, style) + text_balances(run, run, style);
      for (const auto& line : lines_of(text)) EXPECT_LE(columns_of(line), style.columns) << line;
    }
  }
}

TEST(TextTimeline, ColourAndUnicodeOnlyWhereTheyAreWanted) {
  const auto run = through_the_guard();
  const auto is_plain = [](const std::string& text) {
    return std::ranges::all_of(text, [](char byte) { return byte == '\n' || (byte >= ' ' && byte <= '~'); });
  };
  EXPECT_TRUE(is_plain(text_timeline(run, {}) + text_opening(run, {}) + text_balances(run, run, {})));
  EXPECT_THAT(text_timeline(run, {.colour = true, .unicode = false}), HasSubstr("\x1b["));
  EXPECT_THAT(text_timeline(run, {.colour = false, .unicode = true}), Not(HasSubstr("\x1b[")));
}

TEST(TextTimeline, TellsTokensThePauseAndTheRefusal) {
  const auto text = text_timeline(through_the_guard(), {});
  for (const auto* part :
       {"token 1", "token 2", "token 3", "STOPPED", ":::::", "REFUSED", "rolls back", "= 180"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(TextTimeline, TheStopBarLastsUntilTheProcessGoesOn) {
  const auto lines = lines_of(text_timeline(round_the_guard(), {}));
  const auto has_bar = [](const std::string& line) { return line.find("::::") != std::string::npos; };
  const auto of_b = std::ranges::count_if(lines, [&](const std::string& line) { return has_bar(line); });
  EXPECT_GE(of_b, 5);
  const auto resumed =
      std::ranges::find_if(lines, [](const auto& line) { return line.find("GOES ON") != line.npos; });
  ASSERT_NE(resumed, lines.end());
  EXPECT_TRUE(std::none_of(resumed, lines.end(), has_bar));
}

TEST(HtmlTimeline, IsOnePageThatLoadsNothing) {
  const auto page = timeline_page(html_page, round_the_guard(), through_the_guard());
  for (const auto* foreign : {"<script", "src=", "href=", "url(http", "@import", "<link", "<img", "<iframe"})
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_EQ(occurrences(page, "<svg "), 2);
  EXPECT_EQ(occurrences(page, "</svg>"), 2);
  EXPECT_EQ(occurrences(page, "<title id="), 2);
  EXPECT_EQ(occurrences(page, "<desc id="), 2);
}

TEST(SvgTimeline, IsOnePictureThatLoadsNothing) {
  const auto picture = timeline_page(svg_page, round_the_guard(), through_the_guard());
  EXPECT_TRUE(picture.starts_with("<svg "));
  EXPECT_TRUE(picture.ends_with("</svg>\n"));
  EXPECT_EQ(occurrences(picture, "<svg "), 3);
  EXPECT_EQ(occurrences(picture, "<svg x="), 2);
  EXPECT_THAT(picture, HasSubstr("LOST UPDATE"));
  EXPECT_THAT(picture, HasSubstr("REFUSED"));
  for (const auto* foreign : {"<script", "<html", "href=", "url(http", "@import", "width: 100%"})
    EXPECT_THAT(picture, Not(HasSubstr(foreign)));
}

TEST(HtmlTimeline, MarksTheLostUpdateOnlyWhereItHappened) {
  EXPECT_THAT(svg_picture(round_the_guard(), "x"), HasSubstr("LOST UPDATE"));
  EXPECT_THAT(svg_picture(round_the_guard(), "x"), Not(HasSubstr("REFUSED")));
  EXPECT_THAT(svg_picture(through_the_guard(), "x"), Not(HasSubstr("LOST UPDATE")));
  EXPECT_THAT(svg_picture(through_the_guard(), "x"), HasSubstr("REFUSED"));
}

TEST(HtmlTimeline, ARunThatWentOtherwiseIsNotExplainedAsIfItHadNot) {
  auto run = through_the_guard();
  run.final_balance = 130;
  const auto page = timeline_page(html_page, round_the_guard(), run);
  EXPECT_THAT(page, HasSubstr("did not come out as it must"));
  EXPECT_THAT(page, HasSubstr("130, should be 180: A&#39;s +50 is LOST"));
  EXPECT_THAT(page, Not(HasSubstr("A's late write is refused")));
}

TEST(HtmlTimeline, WhatComesFromOutsideIsEscaped) {
  auto run = round_the_guard();
  run.resource = "a<script>&'\"";
  EXPECT_THAT(timeline_page(html_page, run, through_the_guard()), Not(HasSubstr("<script>")));
  EXPECT_EQ(escape_markup("<a b='c' d=\"e\">&"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;");
}

TEST(HtmlTimeline, ARunThatBrokeOffStillMakesAPage) {
  auto run = through_the_guard();
  run.final_balance.reset();
  while (!run.events.empty()) {
    run.events.pop_back();
    EXPECT_THAT(svg_picture(run, "x"), HasSubstr("</svg>"));
    EXPECT_FALSE(text_timeline(run, {}).empty());
  }
}

TEST(Messages, ArriveAsTheyWereSent) {
  for (const auto& run : {round_the_guard(), through_the_guard()})
    for (const auto& event : run.events) EXPECT_EQ(std::get<Event>(decode_message(encode(event))), event);
  EXPECT_TRUE(std::holds_alternative<AtWork>(decode_message(encode(AtWork{}))));
  EXPECT_TRUE(std::holds_alternative<Finished>(decode_message(encode(Finished{}))));
  EXPECT_EQ(std::get<Failed>(decode_message(encode(Failed{"why \"so\""}))).reason, "why \"so\"");
  const auto task = decode_task(
      encode(ClientTask{Party::b, "c", "d", "", "r", 30, std::chrono::milliseconds{500}, "", true}));
  EXPECT_EQ(task.who, Party::b);
  EXPECT_EQ(task.add, 30);
}

TEST(Messages, AMalformedLineIsInvalidInput) {
  for (const auto* line :
       {"", "{", "[]", "1", "{}", R"({"event":"?"})", R"({"event":1})", R"({"message":"?"})",
        R"({"event":"written","client":"C","began_us":1,"ended_us":1})",
        R"({"event":"written","client":"A","began_us":1e400,"ended_us":1})",
        R"({"event":"written","client":"A","began_us":1,"ended_us":1,"token":"0"})"})
    EXPECT_THROW((void)decode_message(line), InvalidInput) << line;
  EXPECT_THROW((void)decode_task("{}"), InvalidInput);
}

TEST(JsonReport, TokensAreStrings) {
  const auto report = json_report("gc-pause", round_the_guard(), through_the_guard());
  EXPECT_THAT(report, HasSubstr(R"("token":"3")"));
  EXPECT_THAT(report, HasSubstr(R"("highest":"2")"));
  EXPECT_THAT(report, HasSubstr(R"("final":150)"));
  EXPECT_THAT(report, HasSubstr(R"("lost_update":"B")"));
}

}  // namespace
}  // namespace fenceguard::demo
