#include "server/resp/relay/relay.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "adapters/redis/wire/cluster.hpp"
#include "adapters/redis/wire/scripts.hpp"
#include "tests/resp/unit/fake_port.hpp"

namespace fenceguard::resp::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr auto stale = "-STALE token=7 highest=9 resource=a: nothing was written\r\n";

std::string refused(const char* verdict, const char* highest) {
  return fmt::format("*4\r\n{}{}$-1\r\n$-1\r\n", bulk(verdict), bulk(highest));
}

class ARelay : public testing::Test {
 protected:
  std::string told() { return driver_.port.take_told(); }
  // What a client gets for what is answered without Redis.
  std::string answer_to(const Words& words) {
    EXPECT_TRUE(driver_.say(words));
    EXPECT_THAT(driver_.port.sent, IsEmpty()) << words[0];
    return told();
  }

  RelayDriver driver_;
};

TEST_F(ARelay, PassesReadsAsTheyAre) {
  ASSERT_TRUE(driver_.say({"get", "k"}));
  const auto sent = driver_.reply("$1\r\nx\r\n");
  EXPECT_EQ(sent.channel, Channel::shared);
  EXPECT_EQ(sent.bytes, request_of({"get", "k"}));
  EXPECT_EQ(told(), "$1\r\nx\r\n");
}

TEST_F(ARelay, RefusesWritesWithoutAClaim) {
  EXPECT_EQ(answer_to({"SET", "{a}:x", "1"}),
            "-NOFENCE resource=a: this connection holds no claim to it; say FENCE a TOKEN HOLDER first"
            " (sent again after a lost connection, the first sending may have taken effect)\r\n");
  EXPECT_THAT(driver_.port.seen, Contains("missing a"));
  EXPECT_THAT(answer_to({"SET", "a//b", "1"}),
              StartsWith("-ERR fenceguard: the key 'a//b' belongs to no resource"));
  EXPECT_THAT(answer_to({"FLUSHALL"}), HasSubstr("--allow-admin"));
}

TEST_F(ARelay, AdvancesBeforeFenceIsAnsweredAndJudgesEachWrite) {
  ASSERT_TRUE(driver_.say({"FENCE", "a", "7", "h"}));
  EXPECT_EQ(told(), "");
  const auto advance = driver_.reply("*4\r\n$8\r\nadmitted\r\n$1\r\n7\r\n:1\r\n:0\r\n");
  EXPECT_EQ(advance.script, &redis::scripts::advance());
  EXPECT_EQ(told(), "+OK\r\n");
  EXPECT_THAT(driver_.port.seen, Contains("raised 7"));
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  const auto write = driver_.reply("+OK\r\n");
  EXPECT_EQ(write.script, &redis::scripts::guarded_one(false));
  EXPECT_EQ(told(), "+OK\r\n");
}

// Nothing that follows FENCE is judged before it was answered, whatever the client sends ahead.
TEST_F(ARelay, NothingIsTakenWhileFenceIsAwaited) {
  ASSERT_TRUE(driver_.say({"FENCE", "a", "7", "h"}));
  EXPECT_TRUE(driver_.relay.is_held());
  EXPECT_FALSE(driver_.say({"SET", "{a}:x", "1"}));
  EXPECT_FALSE(driver_.say({"PING"}));
  (void)driver_.reply("*4\r\n$8\r\nadmitted\r\n$1\r\n7\r\n:0\r\n:0\r\n");
  EXPECT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
}

class AHoldingRelay : public ARelay {
 protected:
  AHoldingRelay() { driver_.relay.hold({{Resource{"a"}, Token{7}, Holder{"h"}, {}}}); }
};

TEST_F(AHoldingRelay, WritesUnderTheHeldClaimFromTheFirstWordOn) {
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  EXPECT_EQ(driver_.reply("+OK\r\n").script, &redis::scripts::guarded_one(false));
  EXPECT_EQ(told(), "+OK\r\n");
  EXPECT_EQ(answer_to({"SET", "{b}:x", "1"}), "-NOFENCE resource=b: this sidecar does not hold it\r\n");
  EXPECT_EQ(answer_to({"FENCES"}), "*1\r\n*2\r\n$1\r\na\r\n$1\r\n7\r\n");
}

TEST_F(AHoldingRelay, TakesNoClaimOfAClientAndLetsNoneGo) {
  for (const Words& words :
       {Words{"FENCE", "a", "8", "h"}, Words{"FENCED", "a", "8", "h", "SET", "{a}:x", "1"}, Words{"UNFENCE"},
        Words{"UNFENCE", "a"}})
    EXPECT_THAT(answer_to(words), StartsWith("-ERR fenceguard: this sidecar holds the claims")) << words[0];
  ASSERT_TRUE(driver_.say({"RESET"}));
  (void)told();
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  EXPECT_EQ(driver_.reply("+OK\r\n").script, &redis::scripts::guarded_one(false));
}

TEST_F(ARelay, HeldClaimIsTheClientsOnceItSaysThatItBeginsAnew) {
  driver_.relay.hold_until_begun(
      {{Resource{"a"}, Token{7}, Holder{"h"}, {}}, {Resource{"b"}, Token{9}, Holder{"h"}, {}}},
      "the lease was lost");
  for (const Words& words : {Words{"SET", "{a}:x", "1"}, Words{"GET", "{a}:x"}, Words{"PING"}, Words{"MULTI"},
                             Words{"FENCE", "c", "8", "h"}, Words{"SUBSCRIBE", "c"}})
    EXPECT_EQ(answer_to(words),
              "-LOST the lease was lost: start the program anew, or let it say FENCE.BEGIN\r\n");
  EXPECT_EQ(answer_to({"CLIENT", "SETNAME", "n"}), "+OK\r\n");
  EXPECT_THAT(answer_to({"FENCE.BEGIN", "9", "x"}), StartsWith("-ERR fenceguard: write FENCE.BEGIN"));
  for (const char* token : {"8", "7", "x", "0"})
    EXPECT_THAT(answer_to({"FENCE.BEGIN", token}), StartsWith("-LOST the lease of token ")) << token;
  EXPECT_THAT(answer_to({"SET", "{a}:x", "1"}), StartsWith("-LOST the lease was lost"));
  EXPECT_EQ(answer_to({"FENCE.BEGIN", "9"}), "+OK\r\n");
  EXPECT_EQ(answer_to({"FENCE.BEGIN"}), "+OK\r\n");
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  EXPECT_EQ(driver_.reply("+OK\r\n").script, &redis::scripts::guarded_one(false));
}

TEST_F(AHoldingRelay, ProgramThatNamesAnotherLeaseIsNotLetInHoweverYoungItIs) {
  EXPECT_THAT(answer_to({"FENCE.BEGIN", "6"}), StartsWith("-LOST the lease of token 6 is over"));
  for (const Words& words : {Words{"SET", "{a}:x", "1"}, Words{"GET", "{a}:x"}, Words{"MULTI"}})
    EXPECT_THAT(answer_to(words), StartsWith("-LOST the lease of token 6 is over")) << words[0];
  EXPECT_EQ(answer_to({"FENCE.BEGIN", "7"}), "+OK\r\n");
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  EXPECT_EQ(driver_.reply("+OK\r\n").script, &redis::scripts::guarded_one(false));
}

TEST_F(AHoldingRelay, LossEndsItAtOnceWhereNothingIsOwed) {
  driver_.relay.lose_claims();
  EXPECT_TRUE(driver_.port.is_ended);
  EXPECT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  EXPECT_THAT(driver_.port.sent, IsEmpty());
}

TEST_F(AHoldingRelay, LossLetsWhatWasSentBeAnsweredAndTakesNothingMore) {
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  driver_.relay.lose_claims();
  EXPECT_FALSE(driver_.port.is_ended);
  EXPECT_TRUE(driver_.say({"SET", "{a}:x", "2"}));
  (void)driver_.reply("+OK\r\n");
  EXPECT_EQ(told(), "+OK\r\n");
  EXPECT_TRUE(driver_.port.is_ended);
  EXPECT_THAT(driver_.port.sent, IsEmpty());
}

TEST_F(AHoldingRelay, LossEndsATransactionThatIsNotExecuted) {
  EXPECT_EQ(answer_to({"MULTI"}), "+OK\r\n");
  EXPECT_EQ(answer_to({"SET", "{a}:x", "1"}), "+QUEUED\r\n");
  driver_.relay.lose_claims();
  EXPECT_TRUE(driver_.port.is_ended);
  EXPECT_TRUE(driver_.say({"EXEC"}));
  EXPECT_THAT(driver_.port.sent, IsEmpty());
}

TEST_F(AHoldingRelay, LossEndsItOnceWhatItWaitsForHasCome) {
  ASSERT_TRUE(driver_.say({"GET", "{a}:x"}));
  (void)driver_.reply("$-1\r\n");
  (void)told();
  driver_.port.binds_later = true;
  ASSERT_TRUE(driver_.say({"SELECT", "1"}));
  driver_.relay.lose_claims();
  EXPECT_FALSE(driver_.port.is_ended);
  EXPECT_TRUE(driver_.relay.bound("", false));
  EXPECT_EQ(told(), "+OK\r\n");
  EXPECT_TRUE(driver_.port.is_ended);
}

TEST_F(AHoldingRelay, LossDoesNotWaitForWhatOthersDo) {
  ASSERT_TRUE(driver_.say({"XREAD", "BLOCK", "0", "STREAMS", "s", "$"}));
  driver_.relay.lose_claims();
  EXPECT_TRUE(driver_.port.is_ended);
}

TEST_F(ARelay, GathersWritesThatFollowEachOtherUnderOneClaim) {
  driver_.fence("a", "7");
  driver_.fence("b", "3");
  for (const Words& words :
       {Words{"INCR", "{a}:n"}, Words{"INCR", "{a}:m"}, Words{"INCR", "{b}:n"}, Words{"GET", "{a}:n"}})
    ASSERT_TRUE(driver_.say_on(words));
  driver_.relay.flush();
  ASSERT_EQ(driver_.port.sent.size(), 3u);
  EXPECT_EQ(driver_.port.sent[0].script, &redis::scripts::guarded(false));
  EXPECT_EQ(driver_.port.sent[1].script, &redis::scripts::guarded_one(false));
  EXPECT_EQ(driver_.port.sent[2].script, nullptr);
  (void)driver_.reply("*3\r\n$-1\r\n:1\r\n:2\r\n");
  EXPECT_EQ(told(), ":1\r\n:2\r\n");
  (void)driver_.reply(":5\r\n");
  (void)driver_.reply("$1\r\n1\r\n");
  EXPECT_EQ(told(), ":5\r\n$1\r\n1\r\n");
}

TEST_F(ARelay, RepliesLeaveInTheOrderOfTheRequests) {
  driver_.fence("a", "7");
  for (const Words& words : {Words{"GET", "k"}, Words{"FENCES"}, Words{"SET", "{b}:x", "1"},
                             Words{"INCR", "{a}:n"}, Words{"UNFENCE"}})
    ASSERT_TRUE(driver_.say_on(words));
  driver_.relay.flush();
  EXPECT_EQ(told(), "");
  (void)driver_.reply("$-1\r\n");
  EXPECT_EQ(told(),
            "$-1\r\n*1\r\n*2\r\n$1\r\na\r\n$1\r\n7\r\n-NOFENCE resource=b: this connection holds no claim "
            "to it; say FENCE b TOKEN HOLDER first\r\n");
  (void)driver_.reply(":1\r\n");
  EXPECT_EQ(told(), ":1\r\n+OK\r\n");
}

TEST_F(ARelay, ARefusedClaimStaysAndIsRefusedFromMemory) {
  driver_.fence("a", "7");
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  (void)driver_.reply(refused("stale", "9"));
  EXPECT_EQ(told(), stale);
  EXPECT_EQ(answer_to({"SET", "{a}:x", "1"}), stale);
  EXPECT_EQ(answer_to({"FENCES"}), "*1\r\n*2\r\n$1\r\na\r\n$1\r\n7\r\n");
  // Only Redis admits: a new claim is judged there.
  driver_.fence("a", "10");
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  (void)driver_.reply("+OK\r\n");
  EXPECT_EQ(told(), "+OK\r\n");
}

TEST_F(ARelay, AClaimThatFenceRefusedIsHeldSoThatItsWritesAreToldWhy) {
  ASSERT_TRUE(driver_.say({"FENCE", "a", "7", "h"}));
  (void)driver_.reply("*4\r\n$5\r\nstale\r\n$1\r\n9\r\n:0\r\n:0\r\n");
  EXPECT_EQ(told(), stale);
  EXPECT_EQ(answer_to({"SET", "{a}:x", "1"}), stale);
}

TEST_F(ARelay, ADuplicateRefusesItsOwnSequenceAlone) {
  ASSERT_TRUE(driver_.say({"FENCED", "a", "7", "h", "SEQ", "4", "INCR", "{a}:n"}));
  (void)driver_.reply(refused("duplicate", "7"));
  EXPECT_EQ(told(),
            "-DUPLICATE sequence=4 token=7 resource=a: it took effect before, nothing was written\r\n");
  ASSERT_TRUE(driver_.say({"FENCED", "a", "7", "h", "SEQ", "5", "INCR", "{a}:n"}));
  EXPECT_EQ(driver_.port.sent.size(), 1u);
}

TEST_F(ARelay, ClaimsAreOfTheDatabaseThatIsSelected) {
  driver_.fence("a", "7");
  EXPECT_EQ(answer_to({"SELECT", "3"}), "+OK\r\n");
  EXPECT_THAT(answer_to({"SET", "{a}:x", "1"}), StartsWith("-NOFENCE resource=a"));
  EXPECT_EQ(answer_to({"FENCES"}), "*0\r\n");
  EXPECT_EQ(answer_to({"SELECT", "0"}), "+OK\r\n");
  ASSERT_TRUE(driver_.say({"SET", "{a}:x", "1"}));
  (void)driver_.reply("+OK\r\n");
  EXPECT_EQ(told(), "+OK\r\n");
}

TEST_F(ARelay, ResetAndUnfenceLetGo) {
  driver_.fence("a", "7");
  EXPECT_EQ(answer_to({"RESET"}), "+RESET\r\n");
  EXPECT_THAT(answer_to({"SET", "{a}:x", "1"}), StartsWith("-NOFENCE"));
  driver_.fence("a", "7");
  EXPECT_EQ(answer_to({"UNFENCE", "a"}), "+OK\r\n");
  EXPECT_THAT(answer_to({"UNFENCE", "a"}), StartsWith("-NOFENCE"));
  EXPECT_THAT(answer_to({"SET", "{a}:x", "1"}), StartsWith("-NOFENCE"));
}

TEST_F(ARelay, FencedTakesOneCommandOfItsResource) {
  const auto said = [&](Words words) {
    words.insert(words.begin(), {"FENCED", "a", "7", "h"});
    return answer_to(words);
  };
  EXPECT_THAT(said({"SET", "{b}:x", "1"}), StartsWith("-NOFENCE resource=b: the claim is to a"));
  EXPECT_THAT(said({"MSET", "{a}:x", "1", "{b}:x", "1"}), StartsWith("-NOFENCE resource=b"));
  EXPECT_THAT(said({"DBSIZE"}), StartsWith("-NOFENCE"));
  EXPECT_THAT(said({"FENCE", "a", "8"}), HasSubstr("cannot be said under FENCED"));
  EXPECT_THAT(said({"MULTI"}), HasSubstr("cannot be said under FENCED"));
  EXPECT_THAT(said({"SELECT", "1"}), HasSubstr("cannot be said under FENCED"));
  EXPECT_THAT(said({"PING"}), HasSubstr("cannot be said under FENCED"));
  EXPECT_THAT(said({"BLPOP", "{a}:l", "0"}), HasSubstr("say LPOP instead"));
  EXPECT_EQ(said({"SET", "{a}:x"}), "-ERR wrong number of arguments for 'set' command\r\n");
  ASSERT_TRUE(driver_.say({"FENCED", "a", "7", "h", "GET", "{a}:x"}));
  EXPECT_EQ(driver_.reply("*2\r\n$-1\r\n$1\r\n5\r\n").script, &redis::scripts::guarded(false));
  EXPECT_EQ(told(), "$1\r\n5\r\n");
}

TEST_F(ARelay, UnderAClaimBlockingIsRefusedWithTheFormThatDoesNot) {
  driver_.fence("a", "7");
  EXPECT_EQ(
      answer_to({"BLPOP", "{a}:l", "0"}),
      "-ERR fenceguard: under a claim BLPOP would act at a moment when nobody judges; say LPOP instead\r\n");
  EXPECT_THAT(answer_to({"XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "{a}:s", ">"}),
              HasSubstr("XREADGROUP without BLOCK"));
}

// A time-out of 0 is no number of keys, as it is in EVAL.
TEST(WhatWaitsForEver, NamesItsKeysAllTheSame) {
  RelayDriver driver{RelayOptions{.permissions = {.unfenced = Unfenced::allow}}};
  driver.fence("a", "7");
  for (const Words& words : {Words{"BLPOP", "{a}:l", "0"}, Words{"BLPOP", "fenceguard:{a}", "0"},
                             Words{"WATCH", "fenceguard:floor", "0"}}) {
    ASSERT_TRUE(driver.say(words));
    EXPECT_THAT(driver.port.sent, IsEmpty()) << words[1];
    EXPECT_THAT(driver.port.take_told(), StartsWith("-ERR fenceguard: ")) << words[1];
  }
}

TEST_F(ARelay, KeysOfFenceguardAreRefusedToEverybody) {
  EXPECT_THAT(answer_to({"GET", "fenceguard:{a}"}), HasSubstr("is fenceguard's own"));
  EXPECT_THAT(answer_to({"WATCH", "x", "fenceguard:floor"}), HasSubstr("is fenceguard's own"));
  EXPECT_THAT(answer_to({"SORT_RO", "k", "GET", "*"}), HasSubstr("could read what is fenceguard's own"));
}

TEST_F(ARelay, WordsThatRedisDoesNotKnowAreAskedForOnce) {
  EXPECT_FALSE(driver_.say({"NEW.ONE", "a b"}));
  EXPECT_THAT(driver_.port.seen, Contains("learn NEW.ONE"));
  driver_.relay.learned();
  EXPECT_EQ(answer_to({"NEW.ONE", "a b"}),
            "-ERR unknown command 'NEW.ONE', with args beginning with: 'a b' \r\n");
}

// Redis compares names up to their first NUL where two of them meet in its table; each would be kept here.
TEST_F(ARelay, NamesThatAreNoneAreNotAskedFor) {
  EXPECT_THAT(answer_to({std::string{"GET\0x", 5}, "k"}), StartsWith("-ERR unknown command 'GET'"));
  EXPECT_THAT(answer_to({std::string(129, 'x')}), StartsWith("-ERR unknown command '"));
  EXPECT_THAT(driver_.port.seen, testing::Not(Contains(StartsWith("learn"))));
}

TEST_F(ARelay, APublishThatWasLostIsUnknown) {
  ASSERT_TRUE(driver_.say({"PUBLISH", "c", "m"}));
  driver_.lose(Channel::shared, true);
  EXPECT_THAT(told(), StartsWith("-UNKNOWN "));
}

TEST_F(ARelay, UnwatchWithinATransactionIsBoundedLikeAnythingElse) {
  RelayDriver driver{RelayOptions{.queue_bytes_max = 100}};
  for (const auto& [words, answer] : {std::pair<Words, std::string>{{"MULTI"}, "+OK"},
                                      {{"UNWATCH", "x"}, "-ERR wrong number of arguments"},
                                      {{"EXEC"}, "-EXECABORT"},
                                      {{"MULTI"}, "+OK"},
                                      {{"UNWATCH"}, "+QUEUED"},
                                      {{"UNWATCH"}, "+QUEUED"},
                                      {{"UNWATCH"}, "+QUEUED"},
                                      {{"UNWATCH"}, "+QUEUED"},
                                      {{"UNWATCH"}, "+QUEUED"},
                                      {{"UNWATCH"}, "-ERR fenceguard: the transaction is larger"}}) {
    ASSERT_TRUE(driver.say(words));
    EXPECT_THAT(driver.port.take_told(), StartsWith(answer)) << words[0];
  }
}

TEST_F(ARelay, AResetThatCannotBeDoneEndsTheConnection) {
  EXPECT_EQ(answer_to({"SELECT", "3"}), "+OK\r\n");
  driver_.port.binds_later = true;
  ASSERT_TRUE(driver_.say({"RESET"}));
  EXPECT_FALSE(driver_.relay.bound("the line is cut", false));
  EXPECT_THAT(told(), StartsWith("-UNAVAILABLE "));
  EXPECT_TRUE(driver_.port.is_ended);
}

TEST_F(ARelay, WhatWasSentAndLostIsUnknownAndWhatWasNotIsUnavailable) {
  driver_.fence("a", "7");
  for (const Words& words :
       {Words{"INCR", "{a}:n"}, Words{"GET", "k"}, Words{"INCR", "{a}:n"}, Words{"INCR", "{a}:n"}})
    ASSERT_TRUE(driver_.say_on(words));
  driver_.relay.flush();
  driver_.lose(Channel::shared, true);
  EXPECT_EQ(told(), "-UNKNOWN the line is cut\r\n");
  driver_.lose(Channel::shared, true);  // a read has done nothing
  EXPECT_EQ(told(), "-UNAVAILABLE the line is cut\r\n");
  driver_.lose(Channel::shared, false);
  EXPECT_EQ(told(), "-UNAVAILABLE the line is cut\r\n-UNAVAILABLE the line is cut\r\n");
}

// Its client may come back on another connection and write under the same claim: that write must wait for it.
TEST_F(ARelay, AFencedWriteToBeSentAgainIsUnderWay) {
  ASSERT_TRUE(driver_.say({"FENCED", "a", "7", "h", "SET", "{a}:x", "1"}));
  (void)driver_.reply("-TRYAGAIN the cluster moves it\r\n");
  EXPECT_FALSE(driver_.relay.awaits_judged_write(Channel::shared));
  ASSERT_EQ(driver_.relay.claims_under_way({}).size(), 1u);
  driver_.relay.woken();
  (void)driver_.reply("+OK\r\n");
  EXPECT_THAT(driver_.relay.claims_under_way({}), IsEmpty());
}

TEST_F(ARelay, AFencedTransactionThatIsJudgedIsUnderWay) {
  ASSERT_TRUE(driver_.say({"FENCED", "a", "7", "h", "BITFIELD", "{a}:x", "SET", "u8", "0", "1"}));
  ASSERT_EQ(driver_.port.sent.size(), 3u);
  EXPECT_FALSE(driver_.relay.awaits_judged_write(Channel::spare));
  EXPECT_EQ(driver_.relay.claims_under_way({}).size(), 1u);
}

// What waits to be taken behind a request that blocks is sent later, too.
TEST_F(ARelay, ClaimsThatUnreadRequestsBringAreUnderWay) {
  using Key = UnsettledClaims::Key;
  EXPECT_THAT(driver_.relay.claims_under_way("FENCED b 5 h SET b old\r\n"), ElementsAre(Key{0, "b", 5}));
  EXPECT_THAT(driver_.relay.claims_under_way("SELECT 1\r\nFENCE a 4\r\nFENCE bad\r\nFENCED c 6 h"),
              ElementsAre(Key{0, "a", 4}, Key{1, "a", 4}));
  EXPECT_THAT(driver_.relay.claims_under_way("GET a\r\n"), IsEmpty());
}

// What stands behind a request that waits on the client's own connection is told behind its reply.
TEST_F(ARelay, ABrokenRequestIsToldBehindAnOwnConnectionsReply) {
  ASSERT_TRUE(driver_.say({"XREAD", "BLOCK", "0", "STREAMS", "s", "$"}));
  driver_.relay.break_off("Protocol error: x");
  EXPECT_EQ(told(), "");
  (void)driver_.reply("*-1\r\n");
  EXPECT_EQ(told(), "*-1\r\n-ERR Protocol error: x\r\n");
  EXPECT_TRUE(driver_.port.is_ended);
}

TEST_F(ARelay, AFenceThatWasLostHoldsNoClaim) {
  ASSERT_TRUE(driver_.say({"FENCE", "a", "7", "h"}));
  (void)driver_.port.take();
  driver_.lose(Channel::shared, true);
  EXPECT_THAT(told(), StartsWith("-UNAVAILABLE"));
  EXPECT_THAT(answer_to({"SET", "{a}:x", "1"}), StartsWith("-NOFENCE"));
}

TEST_F(ARelay, WhatRedisDidNotRunIsSentAgainWithTheText) {
  driver_.fence("a", "7");
  ASSERT_TRUE(driver_.say({"INCR", "{a}:n"}));
  EXPECT_FALSE(driver_.reply("-NOSCRIPT No matching script.\r\n").with_text);
  EXPECT_EQ(told(), "");
  EXPECT_TRUE(driver_.reply(":1\r\n").with_text);
  EXPECT_EQ(told(), ":1\r\n");
}

// The second ran although the first did not: the first may not be done any more.
TEST_F(ARelay, WhatWasNotRunIsNeverDoneBehindWhatCameAfterIt) {
  driver_.fence("a", "7");
  ASSERT_TRUE(driver_.say({"INCR", "{a}:n"}));
  ASSERT_TRUE(driver_.say({"INCR", "{a}:n"}));
  (void)driver_.reply("-NOSCRIPT No matching script.\r\n");
  (void)driver_.reply(":1\r\n");
  EXPECT_THAT(driver_.port.sent, IsEmpty());
  EXPECT_THAT(told(), testing::MatchesRegex("-UNAVAILABLE [^\r]*\r\n:1\r\n"));
}

TEST_F(ARelay, SeveralThatWereNotRunAreSentAgainInTheirOrder) {
  driver_.fence("a", "7");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(driver_.say({"SET", "{a}:x", std::to_string(i)}));
  for (int i = 0; i < 3; ++i) (void)driver_.reply("-NOSCRIPT No matching script.\r\n");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(driver_.port.sent.size(), 1u);
    EXPECT_EQ(driver_.reply("+OK\r\n").words().back(), std::to_string(i));
  }
  EXPECT_EQ(told(), "+OK\r\n+OK\r\n+OK\r\n");
}

TEST_F(ARelay, WhatIsNeverRunEndsUnavailable) {
  driver_.fence("a", "7");
  ASSERT_TRUE(driver_.say({"INCR", "{a}:n"}));
  for (int i = 0; i < 100 && driver_.port.told.empty(); ++i) {
    if (!driver_.port.sent.empty()) {
      (void)driver_.reply("-TRYAGAIN no\r\n");
    } else {
      ASSERT_FALSE(driver_.port.slept_ms.empty());
      driver_.relay.woken();
    }
  }
  EXPECT_THAT(told(), StartsWith("-UNAVAILABLE"));
  EXPECT_TRUE(driver_.relay.is_idle());
}

TEST_F(ARelay, OneServerOfAClusterAtATimeKeepsTheOrder) {
  driver_.port.in_cluster = true;
  ASSERT_TRUE(driver_.say({"GET", "a"}));
  const int first = driver_.port.sent.front().slot % 3;
  std::string key = "b";
  while (static_cast<int>(redis::slot_of(key)) % 3 == first) key += "b";
  EXPECT_FALSE(driver_.say({"GET", key}));
  (void)driver_.reply("$-1\r\n");
  EXPECT_TRUE(driver_.say({"GET", key}));
}

TEST_F(ARelay, InAClusterSeveralSlotsAndKeylessReadsAreRefused) {
  driver_.port.in_cluster = true;
  EXPECT_EQ(answer_to({"MGET", "a", "b"}), "-CROSSSLOT Keys in request don't hash to the same slot\r\n");
  EXPECT_THAT(answer_to({"DBSIZE"}), HasSubstr("names no key"));
  EXPECT_THAT(answer_to({"SELECT", "1"}), HasSubstr("not allowed in cluster mode"));
  EXPECT_THAT(answer_to({"CLUSTER", "NODES"}), HasSubstr("not permitted here"));
  EXPECT_THAT(answer_to({"SPUBLISH", "c", "m"}), HasSubstr("are not relayed"));
  EXPECT_THAT(answer_to({"SSUBSCRIBE", "c"}), HasSubstr("are not relayed"));
}

TEST_F(ARelay, ShowTellsNoHolder) {
  ASSERT_TRUE(driver_.say({"FENCE.SHOW", "a"}));
  EXPECT_EQ(driver_.reply("*5\r\n$1\r\n0\r\n$1\r\n7\r\n$6\r\nsecret\r\n$-1\r\n:1\r\n").script,
            &redis::scripts::look());
  EXPECT_EQ(told(), "*3\r\n$1\r\n7\r\n$-1\r\n:1\r\n");
  ASSERT_TRUE(driver_.say({"FENCE.SHOW", "a"}));
  (void)driver_.reply("*1\r\n$1\r\n0\r\n");
  EXPECT_EQ(told(), "*-1\r\n");
}

TEST_F(ARelay, WhatWaitsGoesOnTheClientsOwnConnection) {
  ASSERT_TRUE(driver_.say({"XREAD", "BLOCK", "0", "STREAMS", "s", "0"}));
  EXPECT_FALSE(driver_.say({"PING"}));
  EXPECT_EQ(driver_.reply("*-1\r\n").channel, Channel::own);
  EXPECT_EQ(told(), "*-1\r\n");
  EXPECT_TRUE(driver_.say({"PING"}));
}

TEST_F(ARelay, MessagesComeWhileThereIsASubscription) {
  ASSERT_TRUE(driver_.say({"SUBSCRIBE", "c"}));
  (void)driver_.reply("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
  driver_.relay.replied(Channel::own, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
  EXPECT_EQ(told(),
            "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
  EXPECT_THAT(answer_to({"GET", "k"}), StartsWith("-ERR Can't execute 'GET'"));
  ASSERT_TRUE(driver_.say({"SUBSCRIBE", "d"}));
  EXPECT_FALSE(driver_.say({"SUBSCRIBE"})) << "it would be refused ahead of the confirmation";
  (void)driver_.reply("*3\r\n$9\r\nsubscribe\r\n$1\r\nd\r\n:2\r\n");
  (void)told();
  EXPECT_THAT(answer_to({"SUBSCRIBE"}), StartsWith("-ERR wrong number of arguments for 'SUBSCRIBE'"));
  ASSERT_TRUE(driver_.say({"UNSUBSCRIBE", "d"}));
  (void)driver_.reply("*3\r\n$11\r\nunsubscribe\r\n$1\r\nd\r\n:1\r\n");
  ASSERT_TRUE(driver_.say({"UNSUBSCRIBE", "c"}));
  (void)driver_.reply("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n");
  (void)told();
  EXPECT_TRUE(driver_.say({"GET", "k"}));
}

TEST_F(ARelay, WhatIsNoRequestIsToldBehindWhatIsOwed) {
  ASSERT_TRUE(driver_.say({"GET", "k"}));
  driver_.relay.break_off("Protocol error: x");
  EXPECT_EQ(told(), "");
  EXPECT_FALSE(driver_.port.is_ended);
  (void)driver_.reply("$-1\r\n");
  EXPECT_EQ(told(), "$-1\r\n-ERR Protocol error: x\r\n");
  EXPECT_TRUE(driver_.port.is_ended);
}

TEST_F(ARelay, HelloSpeaksRespTwoAlone) {
  EXPECT_THAT(answer_to({"HELLO"}), HasSubstr("$5\r\nproto\r\n:2\r\n"));
  EXPECT_THAT(answer_to({"HELLO", "2", "SETNAME", "me"}), StartsWith("*14\r\n"));
  EXPECT_EQ(answer_to({"CLIENT", "GETNAME"}), "$2\r\nme\r\n");
  EXPECT_THAT(answer_to({"HELLO", "3"}), StartsWith("-ERR unknown command 'HELLO'"));
  EXPECT_THAT(answer_to({"HELLO", "4"}), StartsWith("-NOPROTO"));
}

TEST(APasswordOfTheDataSide, IsWantedBeforeAnythingElse) {
  RelayDriver driver{RelayOptions{.lends_identity = true, .data_password = "secret"}};
  for (const Words& words : {Words{"GET", "k"}, Words{"FENCE", "a", "1"}, Words{"MULTI"}}) {
    ASSERT_TRUE(driver.say(words));
    EXPECT_EQ(driver.port.take_told(), "-NOAUTH Authentication required.\r\n") << words[0];
  }
  for (const Words& words : {Words{"AUTH", "wrong"}, Words{"AUTH", "someone", "secret"}, Words{"AUTH", ""}}) {
    ASSERT_TRUE(driver.say(words));
    EXPECT_THAT(driver.port.take_told(), StartsWith("-WRONGPASS"));
  }
  ASSERT_TRUE(driver.say({"AUTH", "default", "secret"}));
  EXPECT_EQ(driver.port.take_told(), "+OK\r\n");
  ASSERT_TRUE(driver.say({"GET", "k"}));
  EXPECT_EQ(driver.port.sent.size(), 1u);
  (void)driver.reply("$-1\r\n");
  (void)driver.port.take_told();
  ASSERT_TRUE(driver.say({"RESET"}));
  (void)driver.port.take_told();
  ASSERT_TRUE(driver.say({"GET", "k"}));
  EXPECT_EQ(driver.port.take_told(), "-NOAUTH Authentication required.\r\n");
}

TEST(Unfenced, RefusesReadsWithoutAClaimOrAllowsWrites) {
  RelayDriver strict{RelayOptions{.permissions = {.unfenced = Unfenced::refuse}}};
  for (const Words& words : {Words{"GET", "{a}:x"}, Words{"DBSIZE"}}) {
    ASSERT_TRUE(strict.say(words));
    EXPECT_THAT(strict.port.take_told(), StartsWith("-NOFENCE"));
  }
  strict.fence("a", "7");
  ASSERT_TRUE(strict.say({"GET", "{a}:x"}));
  EXPECT_EQ(strict.port.sent.size(), 1u);
  (void)strict.reply("$-1\r\n");
  (void)strict.port.take_told();
  for (const Words& words : {Words{"SORT_RO", "{a}:x", "BY", "w:*"}, Words{"SORT_RO", "{a}:x", "GET", "w:*"},
                             Words{"FENCED", "a", "7", "h", "SORT_RO", "{a}:x", "GET", "w:*"}}) {
    ASSERT_TRUE(strict.say(words));
    EXPECT_THAT(strict.port.take_told(), StartsWith("-NOFENCE a pattern of this SORT_RO"));
  }

  RelayDriver open{RelayOptions{.permissions = {.unfenced = Unfenced::allow}}};
  ASSERT_TRUE(open.say({"SET", "{a}:x", "1"}));
  EXPECT_EQ(open.reply("+OK\r\n").script, &redis::scripts::unfenced_one(false));
  EXPECT_EQ(open.port.take_told(), "+OK\r\n");
  ASSERT_TRUE(open.say({"SET", "{a}:x", "1"}));
  (void)open.reply("-NOFENCE a\r\n");
  EXPECT_THAT(open.port.take_told(), StartsWith("-NOFENCE resource=a: it has a fence"));
  EXPECT_THAT(open.port.seen, Contains("missing a"));
  open.fence("a", "7");
  ASSERT_TRUE(open.say({"SET", "{a}:x", "1"}));
  EXPECT_NE(open.port.sent.front().script, nullptr);
}

// Redis counts from any command on: the one that goes ahead of it is answered to nobody.
TEST_F(ARelay, WaitIsWaitByAnyName) {
  for (const char* name : {"WAIT", "hold_on"}) {
    ASSERT_TRUE(driver_.say({name, "0", "0"}));
    ASSERT_EQ(driver_.port.sent.size(), 2u) << name;
    EXPECT_THAT(driver_.reply("+PONG\r\n").words(), ElementsAre("PING"));
    EXPECT_EQ(told(), "");
    EXPECT_THAT(driver_.reply(":0\r\n").words(), ElementsAre(name, "0", "0"));
    EXPECT_EQ(told(), ":0\r\n");
  }
}

}  // namespace
}  // namespace fenceguard::resp::test
