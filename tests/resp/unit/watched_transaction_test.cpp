#include "server/resp/replies/watched_transaction.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "adapters/redis/wire/scripts.hpp"
#include "tests/resp/unit/fake_port.hpp"

namespace fenceguard::resp::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr auto admitted = "*4\r\n$8\r\nadmitted\r\n$1\r\n7\r\n:0\r\n:0\r\n";
constexpr auto is_stale = "*4\r\n$5\r\nstale\r\n$1\r\n9\r\n:0\r\n:0\r\n";
constexpr auto told_stale = "-STALE token=7 highest=9 resource=a: nothing was written\r\n";

class ATransaction : public testing::Test {
 protected:
  ATransaction() { driver_.fence("a", "7"); }

  std::string told() { return driver_.port.take_told(); }

  // MULTI, the commands, EXEC; everything up to the judgement is sent then.
  void begin(const std::vector<Words>& commands) {
    ASSERT_TRUE(driver_.say({"MULTI"}));
    for (const auto& words : commands) ASSERT_TRUE(driver_.say(words));
    ASSERT_TRUE(driver_.say({"EXEC"}));
    std::string queued = "+OK\r\n";
    for (std::size_t i = 0; i < commands.size(); ++i) queued += "+QUEUED\r\n";
    ASSERT_EQ(told(), queued);
  }

  // The words of all that was sent and is not answered.
  std::vector<Words> sent() {
    std::vector<Words> all;
    for (const auto& one : driver_.port.sent) all.push_back(one.words());
    return all;
  }

  RelayDriver driver_;
};

TEST_F(ATransaction, IsJudgedBeforeItsCommandsAreSent) {
  begin({{"SET", "{a}:x", "1"}, {"GET", "k"}});
  ASSERT_EQ(driver_.port.sent.size(), 3u);
  EXPECT_THAT(driver_.port.sent[0].words(), ElementsAre("WATCH", "fenceguard:{a}", "fenceguard:floor"));
  EXPECT_EQ(driver_.port.sent[1].script, &redis::scripts::advance());
  EXPECT_THAT(driver_.port.sent[2].words(), ElementsAre("MULTI"));
  for (const auto& one : driver_.port.sent) EXPECT_EQ(one.channel, Channel::own);
  (void)driver_.reply("+OK\r\n");
  EXPECT_EQ(driver_.port.sent.size(), 2u);
  (void)driver_.reply(admitted);
  EXPECT_EQ(driver_.port.sent.size(), 1u);
  (void)driver_.reply("+OK\r\n");
  ASSERT_EQ(driver_.port.sent.size(), 1u);
  EXPECT_EQ(driver_.port.sent[0].bytes,
            request_of({"SET", "{a}:x", "1"}) + request_of({"GET", "k"}) + request_of({"EXEC"}));
  EXPECT_EQ(driver_.port.sent[0].replies, 3u);
  driver_.relay.replied(Channel::own, "+QUEUED\r\n");
  driver_.relay.replied(Channel::own, "+QUEUED\r\n");
  EXPECT_EQ(told(), "");
  driver_.relay.replied(Channel::own, "*2\r\n+OK\r\n$-1\r\n");
  EXPECT_EQ(told(), "*2\r\n+OK\r\n$-1\r\n");
  EXPECT_TRUE(driver_.relay.is_idle());
}

// Whatever the three answers are, but for 'admitted' and MULTI's OK, none of its commands leaves.
TEST_F(ATransaction, NothingIsSentWhereTheJudgementFails) {
  struct Case {
    const char *watched, *judged, *begun, *undone, *told;
  };
  const Case cases[] = {
      {"+OK\r\n", is_stale, "+OK\r\n", "DISCARD", told_stale},
      {"-NOPERM no\r\n", admitted, "+OK\r\n", "DISCARD", "-NOPERM no\r\n"},
      {"+OK\r\n", admitted, "-NOPERM no multi\r\n", "UNWATCH", "-NOPERM no multi\r\n"},
      {"+OK\r\n", "-BUSY script\r\n", "-BUSY script\r\n", "UNWATCH", "-BUSY script\r\n"},
      {"+OK\r\n", "-UNINITIALISED no\r\n", "+OK\r\n", "DISCARD", "-UNAVAILABLE"},
      {"+OK\r\n", "+what\r\n", "+OK\r\n", "DISCARD", "-UN"},
  };
  for (const auto& one : cases) {
    RelayDriver driver;
    driver.fence("a", "7");
    for (const Words& words : {Words{"MULTI"}, Words{"SET", "{a}:x", "1"}, Words{"EXEC"}})
      ASSERT_TRUE(driver.say(words));
    (void)driver.port.take_told();
    (void)driver.reply(one.watched);
    (void)driver.reply(one.judged);
    (void)driver.reply(one.begun);
    ASSERT_EQ(driver.port.sent.size(), 1u) << one.judged;
    EXPECT_THAT(driver.port.sent[0].words(), ElementsAre(one.undone));
    (void)driver.reply("+OK\r\n");
    EXPECT_THAT(driver.port.take_told(), StartsWith(one.told));
    EXPECT_THAT(driver.port.sent, IsEmpty());
    EXPECT_TRUE(driver.relay.is_idle());
  }
}

TEST_F(ATransaction, ANilWhereTheClientWatchesNothingIsTriedAgain) {
  begin({{"SET", "{a}:x", "1"}});
  for (int attempt = 1;; ++attempt) {
    ASSERT_LE(attempt, 5);
    (void)driver_.reply("+OK\r\n");
    (void)driver_.reply(admitted);
    (void)driver_.reply("+OK\r\n");
    (void)driver_.reply("+QUEUED\r\n");
    driver_.relay.replied(Channel::own, "*-1\r\n");
    if (attempt == 5) break;
    ASSERT_EQ(told(), "");
  }
  EXPECT_THAT(told(), StartsWith("-UNAVAILABLE a fence changed each time"));
}

TEST_F(ATransaction, ANilWhereTheClientWatchesIsItsAnswer) {
  ASSERT_TRUE(driver_.say({"WATCH", "k"}));
  EXPECT_EQ(driver_.reply("+OK\r\n").channel, Channel::own);
  ASSERT_EQ(told(), "+OK\r\n");
  begin({{"SET", "{a}:x", "1"}});
  EXPECT_EQ(driver_.port.prepared.back(), "own -1 stays");
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply("+QUEUED\r\n");
  driver_.relay.replied(Channel::own, "*-1\r\n");
  EXPECT_EQ(told(), "*-1\r\n");
  EXPECT_THAT(driver_.port.sent, IsEmpty());
}

TEST_F(ATransaction, AWatchThatWasLostIsANil) {
  ASSERT_TRUE(driver_.say({"WATCH", "k"}));
  (void)driver_.reply("+OK\r\n");
  driver_.lose(Channel::own, false);
  (void)told();
  ASSERT_TRUE(driver_.say({"MULTI"}));
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  ASSERT_TRUE(driver_.say({"EXEC"}));
  EXPECT_EQ(told(), "+OK\r\n+QUEUED\r\n*-1\r\n");
  EXPECT_THAT(driver_.port.sent, IsEmpty());
}

TEST_F(ATransaction, AForgottenScriptIsSentWithItsText) {
  begin({{"SET", "{a}:x", "1"}});
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply("-NOSCRIPT No matching script.\r\n");
  (void)driver_.reply("+OK\r\n");
  EXPECT_THAT(driver_.reply("+OK\r\n").words(), ElementsAre("DISCARD"));
  EXPECT_EQ(told(), "");
  (void)driver_.reply("+OK\r\n");
  EXPECT_TRUE(driver_.reply(admitted).with_text);
}

TEST_F(ATransaction, LossBeforeCommandsIsUnavailableAndAfterThemUnknown) {
  begin({{"SET", "{a}:x", "1"}});
  (void)driver_.reply("+OK\r\n");
  driver_.lose(Channel::own, true);
  EXPECT_THAT(told(), StartsWith("-UNAVAILABLE"));
  driver_.port.sent.clear();
  begin({{"SET", "{a}:x", "1"}});
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  (void)driver_.reply("+OK\r\n");
  driver_.lose(Channel::own, true);
  EXPECT_THAT(told(), StartsWith("-UNKNOWN the transaction was sent"));
  driver_.port.sent.clear();
  begin({{"SET", "{a}:x", "1"}});
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  (void)driver_.reply("+OK\r\n");
  driver_.lose(Channel::own, false);
  EXPECT_THAT(told(), StartsWith("-UNAVAILABLE"));
}

TEST_F(ATransaction, ACommandWithoutAClaimFailsAllOfIt) {
  for (const Words& words :
       {Words{"MULTI"}, Words{"SET", "{b}:x", "1"}, Words{"SET", "{a}:x", "1"}, Words{"EXEC"}})
    ASSERT_TRUE(driver_.say(words));
  EXPECT_EQ(
      told(),
      "+OK\r\n-NOFENCE resource=b: this connection holds no claim to it; say FENCE b TOKEN HOLDER first\r\n"
      "+QUEUED\r\n-EXECABORT Transaction discarded because of previous errors.\r\n");
  EXPECT_THAT(driver_.port.sent, IsEmpty());
}

TEST_F(ATransaction, TakesNoFence) {
  ASSERT_TRUE(driver_.say({"MULTI"}));
  (void)told();
  for (const Words& words : {Words{"FENCE", "a", "9"}, Words{"FENCED", "a", "9", "h", "SET", "{a}:x", "1"},
                             Words{"SELECT", "1"}, Words{"AUTH", "x"}, Words{"SUBSCRIBE", "c"}}) {
    ASSERT_TRUE(driver_.say(words));
    EXPECT_THAT(told(), HasSubstr("is not permitted inside MULTI")) << words[0];
  }
  ASSERT_TRUE(driver_.say({"EXEC"}));
  EXPECT_THAT(told(), StartsWith("-EXECABORT"));
}

TEST_F(ATransaction, ARefusalThatIsKnownIsToldWithoutRedis) {
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  (void)driver_.reply("*4\r\n$5\r\nstale\r\n$1\r\n9\r\n$-1\r\n$-1\r\n");
  (void)told();
  for (const Words& words : {Words{"MULTI"}, Words{"SET", "{a}:x", "1"}, Words{"EXEC"}})
    ASSERT_TRUE(driver_.say(words));
  EXPECT_EQ(told(), std::string{"+OK\r\n+QUEUED\r\n"} + told_stale);
  EXPECT_THAT(driver_.port.sent, IsEmpty());
}

TEST_F(ATransaction, WithoutAClaimIsBegunAtRedisAll) {
  RelayDriver driver;
  for (const Words& words : {Words{"MULTI"}, Words{"GET", "k"}, Words{"EXEC"}})
    ASSERT_TRUE(driver.say(words));
  ASSERT_EQ(driver.port.sent.size(), 1u);
  EXPECT_THAT(driver.port.sent[0].words(), ElementsAre("MULTI"));
  (void)driver.reply("-BUSY script\r\n");
  // What follows a MULTI that was refused would run on its own.
  ASSERT_EQ(driver.port.sent.size(), 1u);
  EXPECT_THAT(driver.port.sent[0].words(), ElementsAre("UNWATCH"));
}

TEST_F(ATransaction, EndsWithDiscardAndWithReset) {
  for (const Words& words : {Words{"MULTI"}, Words{"SET", "{a}:x", "1"}, Words{"DISCARD"}})
    ASSERT_TRUE(driver_.say(words));
  EXPECT_EQ(told(), "+OK\r\n+QUEUED\r\n+OK\r\n");
  for (const Words& words : {Words{"MULTI"}, Words{"SET", "{a}:x", "1"}, Words{"RESET"}})
    ASSERT_TRUE(driver_.say(words));
  EXPECT_EQ(told(), "+OK\r\n+QUEUED\r\n+RESET\r\n");
  ASSERT_TRUE(driver_.say({"EXEC"}));
  EXPECT_EQ(told(), "-ERR EXEC without MULTI\r\n");
  EXPECT_THAT(driver_.port.sent, IsEmpty());
}

TEST_F(ATransaction, OneCommandOfSeveralResourcesIsAllOrNone) {
  driver_.fence("b", "3");
  ASSERT_TRUE(driver_.say({"MSET", "{a}:x", "1", "{b}:x", "2"}));
  ASSERT_EQ(driver_.port.sent.size(), 4u);
  EXPECT_THAT(driver_.port.sent[0].words(),
              ElementsAre("WATCH", "fenceguard:{a}", "fenceguard:{b}", "fenceguard:floor"));
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  EXPECT_EQ(driver_.reply("*4\r\n$5\r\nstale\r\n$1\r\n4\r\n:0\r\n:0\r\n").channel, Channel::spare);
  (void)driver_.reply("+OK\r\n");
  EXPECT_THAT(driver_.reply("+OK\r\n").words(), ElementsAre("DISCARD"));
  EXPECT_EQ(told(), "-STALE token=3 highest=4 resource=b: nothing was written\r\n");
  EXPECT_THAT(driver_.port.seen, Contains("write stale b 4 x1"));
}

TEST_F(ATransaction, OneCommandIsAnsweredAsOne) {
  ASSERT_TRUE(driver_.say({"BITFIELD", "{a}:x", "GET", "u8", "0"}));
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply("+QUEUED\r\n");
  driver_.relay.replied(Channel::spare, "*1\r\n*1\r\n:0\r\n");
  EXPECT_EQ(told(), "*1\r\n:0\r\n");
}

// A client would take the rest for the answers to what it says next.
TEST_F(ATransaction, AnExecWithMoreRepliesThanCommandsIsUnknown) {
  ASSERT_TRUE(driver_.say({"BITFIELD", "{a}:x", "GET", "u8", "0"}));
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply("+QUEUED\r\n");
  driver_.relay.replied(Channel::spare, "*2\r\n:0\r\n:1\r\n");
  EXPECT_THAT(told(), StartsWith("-UNKNOWN Redis answered EXEC"));
}

TEST_F(ATransaction, WhatRedisDoesNotQueueIsToldInItsWords) {
  begin({{"SET", "{a}:x", "1"}});
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply("-OOM no\r\n");
  driver_.relay.replied(Channel::own, "-EXECABORT Transaction discarded because of previous errors.\r\n");
  EXPECT_THAT(told(), StartsWith("-EXECABORT"));
  EXPECT_TRUE(driver_.relay.is_idle());
}

// Redis applied nothing: it is tried where the slot is now, and the client is not led there.
TEST_F(ATransaction, ASlotThatMovesBeforeExecIsFollowed) {
  driver_.port.in_cluster = true;
  begin({{"SET", "{a}:x", "1"}});
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply("+QUEUED\r\n");
  driver_.relay.replied(Channel::own, "-MOVED 15495 127.0.0.1:7000\r\n");
  EXPECT_EQ(told(), "");
  EXPECT_THAT(driver_.port.seen, Contains("redirect 15495 MOVED 15495 127.0.0.1:7000"));
  ASSERT_EQ(driver_.port.slept_ms.size(), 1u);
  driver_.relay.woken();
  ASSERT_FALSE(driver_.port.sent.empty());
  EXPECT_THAT(driver_.port.sent.front().words(), ElementsAre("WATCH", "fenceguard:{a}"));
}

// What the client watches is lost with the server that it was watched on.
TEST_F(ATransaction, ASlotThatMovesBeforeTheExecOfAWatchIsToldWithoutAnAddress) {
  driver_.port.in_cluster = true;
  ASSERT_TRUE(driver_.say({"WATCH", "{a}:x"}));
  (void)driver_.reply("+OK\r\n");
  (void)told();
  begin({{"SET", "{a}:x", "1"}});
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply(admitted);
  (void)driver_.reply("+OK\r\n");
  (void)driver_.reply("+QUEUED\r\n");
  driver_.relay.replied(Channel::own, "-ASK 15495 127.0.0.1:7000\r\n");
  EXPECT_THAT(told(), StartsWith("-TRYAGAIN the cluster moves these keys"));
}

TEST_F(ATransaction, ASequenceIsRefusedWhereAScriptCannotCarryIt) {
  ASSERT_TRUE(driver_.say({"FENCED", "a", "7", "h", "SEQ", "1", "BITFIELD", "{a}:x", "GET", "u8", "0"}));
  EXPECT_EQ(told(), "-ERR fenceguard: BITFIELD cannot carry a sequence\r\n");
}

}  // namespace
}  // namespace fenceguard::resp::test
