// What a running guard keeps about itself: the ring of events, their stream, and the verdicts of 15 minutes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/control/refusal_log.hpp"
#include "server/control/watch/console_page.hpp"
#include "server/control/watch/event_feed.hpp"
#include "server/control/watch/watch.hpp"

namespace fenceguard {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

void add(EventLog& log, int count, EventKind kind = EventKind::refusal) {
  for (int i = 0; i < count; ++i) log.add({.kind = kind, .resource = "accounts/42", .verdict = "stale"});
}

TEST(EventLog, KeepsTheLastThousandAndSaysHowManyAreMissed) {
  EventLog log;
  add(log, 3);
  EXPECT_EQ(log.after(0, 10).events.size(), 3U);
  EXPECT_EQ(log.after(1, 1).events.at(0).number, 2U);
  EXPECT_TRUE(log.after(3, 10).events.empty());
  add(log, 2'000);
  const auto page = log.after(3, 5'000);
  EXPECT_EQ(page.events.size(), EventLog::capacity);
  EXPECT_EQ(page.events.front().number, 1'004U);
  EXPECT_EQ(page.events.back().number, 2'003U);
  EXPECT_EQ(page.missed, 1'000U);
  EXPECT_EQ(log.after(2'003, 10).missed, 0U);
  EXPECT_EQ(log.after(9'999, 10).events.size(), 0U);
}

TEST(EventLog, LastIsOfOneKindAndTheNewestFirst) {
  EventLog log;
  EXPECT_TRUE(log.last(EventKind::refusal, 10).empty());
  add(log, 2);
  add(log, 5, EventKind::takeover);
  add(log, 1);
  const auto last = log.last(EventKind::refusal, 2);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0].number, 8U);
  EXPECT_EQ(last[1].number, 2U);
  add(log, 2'000, EventKind::takeover);
  EXPECT_TRUE(log.last(EventKind::refusal, 10).empty());
}

TEST(EventLog, ALongDetailIsCutBetweenCharacters) {
  EventLog log;
  std::string detail;
  for (int i = 0; i < 300; ++i) detail += "\u00e4";  // two bytes each
  log.add({.resource = "a", .detail = "x" + detail});
  const auto kept = log.after(0, 1).events.at(0).detail;
  EXPECT_EQ(kept.size(), EventLog::detail_bytes_max - 1);
  EXPECT_EQ(kept, ("x" + detail).substr(0, kept.size()));
}

class EventFeedTest : public testing::Test {
 protected:
  std::string read(EventFeed& feed) {
    std::string out;
    EXPECT_TRUE(feed.read(out));
    return out;
  }
  std::shared_ptr<EventFeed> open(std::string_view last_seen = "") {
    return EventFeed::open(log_, clients_, last_seen, [this] { return is_permitted_; });
  }
  std::string id(int number) { return log_.run() + "-" + std::to_string(number); }

  EventLog log_;
  EventFeed::Followers clients_ = std::make_shared<std::atomic<int>>(0);
  bool is_permitted_ = true;
};

TEST_F(EventFeedTest, BeginsWithWhatIsKeptAndGoesOn) {
  add(log_, 2);
  const auto feed = open();
  const auto first = read(*feed);
  EXPECT_THAT(first, HasSubstr("id: " + id(1) + "\nevent: refusal\ndata: {"));
  EXPECT_THAT(first, HasSubstr("id: " + id(2) + "\n"));
  EXPECT_EQ(read(*feed), "");
  add(log_, 1, EventKind::takeover);
  EXPECT_THAT(read(*feed), HasSubstr("id: " + id(3) + "\nevent: takeover\n"));
}

TEST_F(EventFeedTest, ResumesBehindTheLastOneSeen) {
  add(log_, 3);
  const auto text = read(*open(id(2)));
  EXPECT_THAT(text, HasSubstr(id(3)));
  EXPECT_THAT(text, Not(HasSubstr(id(2) + "\n")));
  EXPECT_THAT(text, Not(HasSubstr("gap")));
}

TEST_F(EventFeedTest, AGapIsTold) {
  add(log_, 1'500);
  EXPECT_THAT(read(*open(id(100))), HasSubstr("event: gap\ndata: {\"missed\":400}\n"));
  EXPECT_THAT(read(*open()), Not(HasSubstr("gap")));
}

TEST_F(EventFeedTest, AReaderThatIsOvertakenIsTold) {
  add(log_, 1);
  const auto feed = open();
  (void)read(*feed);
  add(log_, 1'200);
  EXPECT_THAT(read(*feed), HasSubstr("event: gap\ndata: {\"missed\":200}\n"));
}

TEST_F(EventFeedTest, AnIdOfAnotherRunOrNoneAtAllIsAGap) {
  add(log_, 1);
  for (const char* strange : {"other-1", "1", "-", "x-y", "-1", "\xff"}) {
    const auto text = read(*open(strange));
    EXPECT_THAT(text, HasSubstr("event: gap\ndata: {\"detail\":")) << strange;
    EXPECT_THAT(text, HasSubstr(id(1))) << strange;
  }
}

TEST_F(EventFeedTest, OnePieceIsBounded) {
  for (std::size_t i = 0; i < EventLog::capacity; ++i)
    log_.add({.resource = std::string(512, '"'), .detail = std::string(400, '"')});
  const auto feed = open();
  std::size_t pieces = 0;
  for (std::string piece = read(*feed); !piece.empty(); piece = read(*feed), ++pieces)
    EXPECT_LT(piece.size(), 64U * 1024);
  EXPECT_GT(pieces, 10U);
}

TEST_F(EventFeedTest, SoManyClientsAndNoMore) {
  std::vector<std::shared_ptr<EventFeed>> feeds;
  for (int i = 0; i < EventFeed::clients_max; ++i) feeds.push_back(open());
  EXPECT_EQ(open(), nullptr);
  feeds.pop_back();
  EXPECT_NE(open(), nullptr);
}

TEST_F(EventFeedTest, EndsWhereItsTokenWasWithdrawn) {
  is_permitted_ = false;
  std::string out;
  EXPECT_FALSE(open()->read(out));
}

TEST(VerdictWindow, CountsFromTheStartAndThenFifteenMinutes) {
  const BootClock::time_point began{1h};
  VerdictWindow window{began};
  EXPECT_EQ(window.look({7}, began + 30s).counts[0], 7U);
  EXPECT_EQ(window.look({7}, began + 30s).length, 30s);
  for (int minute = 1; minute <= 60; ++minute) {
    const auto count = static_cast<std::uint64_t>(minute) * 10;
    window.sample({count}, began + minute * 1min);
    window.sample({count + 5}, began + minute * 1min + 1s);  // too soon
  }
  const auto last = window.look({603}, began + 60min + 30s);
  EXPECT_EQ(last.length, 15min + 30s);
  EXPECT_EQ(last.counts[0], 603U - 450U);
}

TEST(Watch, TellsThatAQuarantineIsOver) {
  const Metrics metrics{"http"};
  RefusalLog log;
  bool is_quarantined = true;
  Watch watch{
      metrics, log.events(), [&](std::string_view) {
        return is_quarantined ? std::optional{Fault{FaultKind::unavailable, "why", 1s}} : std::nullopt;
      }};
  log.quarantined("accounts/42", {FaultKind::unavailable, "why", 30s});
  watch.look(BootClock::now());
  EXPECT_EQ(log.events().last_number(), 1U);
  is_quarantined = false;
  watch.look(BootClock::now());
  watch.look(BootClock::now());
  const auto events = log.events().after(0, 10).events;
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].left, 30s);
  EXPECT_EQ(events[1].kind, EventKind::quarantine_end);
  EXPECT_EQ(events[1].resource, "accounts/42");
}

TEST(RefusalLog, WhatRaisesAFenceIsATakeOver) {
  RefusalLog log;
  const Claim claim{Resource{"a"}, Token{7}, Holder{"secret"}, Sequence{1}};
  log.ruled("write", claim, judge({}, claim), "127.0.0.1");
  const FenceView view{Fence{Token{7}, Holder{"secret"}, Sequence{1}}, 0};
  const Claim next{Resource{"a"}, Token{7}, Holder{"secret"}, Sequence{2}};
  log.ruled("write", next, judge(view, next), "127.0.0.1");
  log.ruled("write", next.without_sequence(), judge(view, next.without_sequence()), "127.0.0.1");
  const auto events = log.events().after(0, 10).events;
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, EventKind::takeover);
  EXPECT_EQ(events[0].token, 7);
  EXPECT_THAT(event_body(events[0], "run").contains("holder"), false);
}

TEST(ConsolePage, IsOneSmallPageThatLoadsNothing) {
  const auto& page = console_page();
  EXPECT_LT(page.html.size(), 60U * 1024);
  EXPECT_THAT(page.html, Not(HasSubstr("/*script*/")));
  EXPECT_THAT(page.html, Not(HasSubstr("innerHTML")));
  EXPECT_THAT(page.policy, HasSubstr("default-src 'none'; script-src 'sha256-"));
}

}  // namespace
}  // namespace fenceguard
