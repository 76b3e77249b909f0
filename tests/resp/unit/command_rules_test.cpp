#include "server/resp/command/command_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/resp/unit/fake_port.hpp"

namespace fenceguard::resp::test {
namespace {

class Rules : public testing::Test {
 protected:
  Rules() { learn_some_commands(table_); }

  Way way(const Views& words, const Permissions& permissions = {}) { return rule(words, permissions).way; }
  Rule rule(const Views& words, const Permissions& permissions = {}) {
    return rule_for(*table_.find(words), words, permissions);
  }

  redis::CommandTable table_;
};

TEST_F(Rules, ReadsPassAndWritesAreJudged) {
  EXPECT_EQ(way({"GET", "k"}), Way::read);
  EXPECT_EQ(way({"DBSIZE"}), Way::read);
  EXPECT_EQ(way({"SET", "k", "v"}), Way::write);
  EXPECT_EQ(way({"BLPOP", "k", "0"}), Way::write);
  EXPECT_EQ(way({"COPY", "a", "b"}), Way::write);
  EXPECT_EQ(way({"PING"}), Way::read);
  EXPECT_EQ(way({"PUBLISH", "c", "m"}), Way::read);
  EXPECT_EQ(way({"WAIT", "0", "0"}), Way::own);
}

TEST_F(Rules, WhatIsNotKnownToReadIsRefused) {
  EXPECT_THAT(std::string{rule({"WEIRD"}).objection}, testing::HasSubstr("does not know whether it writes"));
  for (const Permissions& permissions :
       {Permissions{}, Permissions{.unfenced = Unfenced::allow, .admin = true, .scripts = true}})
    EXPECT_EQ(way({"WEIRD"}, permissions), Way::refused);
}

TEST_F(Rules, AdministrationAndScriptsWantTheirPermission) {
  const Permissions admin{.admin = true}, scripts{.scripts = true};
  for (const Views& words :
       {Views{"FLUSHALL"}, Views{"CONFIG", "SET", "a", "b"}, Views{"COPY", "a", "b", "db", "1"}}) {
    EXPECT_EQ(way(words), Way::refused) << words[0];
    EXPECT_EQ(way(words, scripts), Way::refused) << words[0];
    EXPECT_EQ(way(words, admin), Way::own) << words[0];
  }
  EXPECT_EQ(way({"EVAL", "x", "0"}), Way::refused);
  EXPECT_EQ(way({"EVAL", "x", "0"}, admin), Way::refused);
  EXPECT_EQ(way({"EVAL", "x", "0"}, scripts), Way::script);
  for (const Views& words : {Views{"CLUSTER", "NODES"}, Views{"MONITOR"}})
    EXPECT_EQ(way(words, {.unfenced = Unfenced::allow, .admin = true, .scripts = true}), Way::refused)
        << words[0];
}

TEST_F(Rules, WaitingIsToldFromWords) {
  const auto does = [&](const Views& words) { return waits(*table_.find(words), words); };
  EXPECT_TRUE(does({"BLPOP", "k", "0"}));
  EXPECT_FALSE(does({"LPOP", "k"}));
  EXPECT_FALSE(does({"XREAD", "STREAMS", "s", "0"}));
  EXPECT_TRUE(does({"XREAD", "block", "0", "STREAMS", "s", "0"}));
  EXPECT_EQ(way({"XREAD", "BLOCK", "0", "STREAMS", "s", "0"}), Way::own);
  EXPECT_EQ(way({"XREAD", "STREAMS", "s", "0"}), Way::read);
  EXPECT_EQ(form_without_waiting("BLPOP"), "LPOP");
  EXPECT_EQ(form_without_waiting("XREADGROUP"), "XREADGROUP without BLOCK");
  EXPECT_EQ(form_without_waiting("SET"), "");
}

TEST_F(Rules, PatternsThatReachTheFencesAreRefused) {
  const redis::Keys keys{"app:"};
  const auto reaches = [&](const Views& words) { return reaches_reserved(*table_.find(words), words, keys); };
  for (const auto* pattern : {"*", "a*", "app:*", "app:{x}*", "fence*", "fenceguard:{*}->token", "ap*->x"})
    EXPECT_TRUE(reaches({"SORT_RO", "k", "GET", pattern})) << pattern;
  for (const auto* pattern : {"#", "app", "data:*", "b*", "fences*"})
    EXPECT_FALSE(reaches({"SORT_RO", "k", "BY", pattern})) << pattern;
  EXPECT_FALSE(reaches({"GET", "*"}));
}

TEST_F(Rules, LocksThatAreKeptElsewhereAreReserved) {
  const redis::Keys keys{"app:", redis::LockPattern::parse("lock:%s:it")};
  EXPECT_TRUE(keys.is_reserved("lock:a:it"));
  EXPECT_TRUE(keys.is_reserved("app:x"));
  EXPECT_FALSE(keys.is_reserved("lock:a"));
  EXPECT_FALSE(keys.is_reserved("a:it"));
  EXPECT_FALSE(redis::Keys{"app:"}.is_reserved("lock:a:it"));
  EXPECT_TRUE(reaches_reserved(*table_.find(Views{"SORT_RO"}), Views{"SORT_RO", "k", "GET", "lo*"}, keys));
}

TEST_F(Rules, OptionsEndAtTheirFirstNul) {
  using namespace std::string_view_literals;
  EXPECT_EQ(way({"COPY", "a", "b", "db\0x"sv, "1"}), Way::refused);
  EXPECT_EQ(way({"XREAD", "BLOCK\0"sv, "0", "STREAMS", "s", "0"}), Way::own);
  EXPECT_TRUE(reaches_reserved(*table_.find(Views{"SORT_RO"}),
                               Views{"SORT_RO", "k", "GET\0x"sv, "fenceguard:*->holder"}, redis::Keys{"p:"}));
}

}  // namespace
}  // namespace fenceguard::resp::test
