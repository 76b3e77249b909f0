#include "adapters/zookeeper/wire/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

using testing::ElementsAre;

constexpr auto guid = "0123456789abcdef0123456789abcdef";

TEST(Layout, OurNamesAreThoseOfTheLibraries) {
  EXPECT_EQ(entry_name(Layout::kazoo, guid), "0123456789abcdef0123456789abcdef__lock__");
  EXPECT_EQ(entry_name(Layout::curator, guid), "_c_01234567-89ab-cdef-0123-456789abcdef-lock-");
}

TEST(Layout, EntriesEndInAMarkAndASequence) {
  EXPECT_EQ(sequence_of("abc__lock__0000000007"), 7u);
  EXPECT_EQ(sequence_of("_c_abc-lock-0000000007"), 7u);
  EXPECT_EQ(sequence_of("lock-2147483647"), 2147483647u);
  EXPECT_EQ(sequence_of("lock--2147483648"), 2147483648u);
  EXPECT_EQ(sequence_of("abc__lock__-2147483647"), 2147483649u);
  EXPECT_EQ(sequence_of("abc__lock__-000000001"), 4294967295u);
  EXPECT_EQ(sequence_of("_c_abc-lock--000000001"), 4294967295u);
  for (const auto* name :
       {"", "lock-", "lock-123", "0000000007", "abc__rlock__0000000007", "abc__lock__00000000x7",
        "lock-00000000007", "lock-000000001", "lock--00000001", "lease_holder", "block_0000000007"}) {
    EXPECT_EQ(sequence_of(name), std::nullopt) << name;
  }
}

TEST(Layout, EntriesOfBothLibrariesShareOneOrder) {
  EXPECT_THAT(entries_of({"b__lock__0000000003", "x", "_c_a-lock-0000000002", "a__lock__0000000010"}),
              ElementsAre("_c_a-lock-0000000002", "b__lock__0000000003", "a__lock__0000000010"));
  EXPECT_THAT(entries_of({}), ElementsAre());
}

TEST(Layout, TheSequenceMayComeRound) {
  EXPECT_THAT(entries_of({"lock--2147483648", "lock-2147483647", "lock--2147483647", "lock-2147483646"}),
              ElementsAre("lock-2147483646", "lock-2147483647", "lock--2147483648", "lock--2147483647"));
  EXPECT_THAT(entries_of({"lock-0000000000", "lock--000000001", "lock--000000002", "lock-0000000001"}),
              ElementsAre("lock--000000002", "lock--000000001", "lock-0000000000", "lock-0000000001"));
  EXPECT_TRUE(is_before(0xFFFFFFFFu, 0));
  EXPECT_FALSE(is_before(0, 0xFFFFFFFFu));
}

TEST(Layout, AResourceIsAPathBelowTheRoot) {
  const LockPath path{"/app", ""};
  EXPECT_EQ(path.of(Resource{"accounts/42"}), "/app/locks/accounts/42");
  EXPECT_EQ(path.top(), "/app/locks");
  EXPECT_EQ(path.of(Resource{"100%"}), "/app/locks/100%25");
  EXPECT_EQ(path.of(Resource{"zookeeper"}), "/app/locks/zookeeper");
}

TEST(Layout, WhatZooKeeperRefusesInAPathIsEncoded) {
  EXPECT_EQ(segment_name("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
  EXPECT_EQ(segment_name("\xEE\x80\x80"), "%EE%80%80");           // U+E000
  EXPECT_EQ(segment_name("\xEF\xBF\xBD"), "%EF%BF%BD");           // U+FFFD
  EXPECT_EQ(segment_name("a\xF0\x9F\x94\x92"), "a%F0%9F%94%92");  // two surrogates there
  EXPECT_EQ(segment_name("\xEF\xBF\xAF"), "\xEF\xBF\xAF");        // U+FFEF
}

TEST(Layout, AResourceIsNeverReadAsAnEntry) {
  EXPECT_EQ(segment_name("x__lock__0000000001"), "x__lock__000000000%31");
  EXPECT_EQ(segment_name("lock-0000000009"), "lock-000000000%39");
  EXPECT_EQ(segment_name("lock-009"), "lock-009");
}

TEST(Layout, ALocksNodeTellsItsResource) {
  for (const std::string pattern : {"", "/their/%s/lock"}) {
    const LockPath path{"/app", pattern};
    for (const char* of : {"a", "a/b", "a%2Fb", "lock/lock", "abc__lock__0000000007", "\u00e4/\U0001F600"}) {
      const auto node = path.of(Resource{of});
      EXPECT_EQ(path.resource_of(node), Resource{of}) << node;
      EXPECT_TRUE(path.may_be_above(node, of)) << node;
      EXPECT_TRUE(path.may_be_above(path.top(), of)) << node;
      EXPECT_FALSE(path.may_be_above(node, "other")) << node;
    }
    for (const char* node : {"/app", "/app/locks", "/app/locks/%zz", "/app/locks/%41", "/app/offset",
                             "/their", "/their/lock", "/their/a/b", "/their//lock"})
      EXPECT_FALSE(path.resource_of(node)) << pattern << node;
  }
}

TEST(Layout, ALockPathOfOthersHasOnePlaceForTheResource) {
  const LockPath path{"/app", "/their/%s/lock"};
  EXPECT_EQ(path.of(Resource{"accounts/42"}), "/their/accounts/42/lock");
  EXPECT_EQ(path.top(), "/their");
  for (const auto* pattern :
       {"their/%s", "/their", "/%s/%s/x", "/their/x%s", "/their/%s/", "/%s", "/a//%s"}) {
    EXPECT_THROW(LockPath("/app", pattern), InvalidInput) << pattern;
  }
}

}  // namespace
}  // namespace fenceguard::zookeeper
