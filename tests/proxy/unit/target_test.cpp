#include "server/proxy/request/target.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fenceguard::proxy {
namespace {

using testing::HasSubstr;

Target good(std::string_view text, std::size_t depth = 0) {
  auto parsed = parse_target(text, depth);
  if (const auto* bad = std::get_if<BadPath>(&parsed)) throw std::runtime_error{bad->reason};
  return std::get<Target>(std::move(parsed));
}

std::string reason(const std::variant<Target, BadPath>& parsed) {
  const auto* bad = std::get_if<BadPath>(&parsed);
  return bad == nullptr ? "" : bad->reason;
}

TEST(TargetTest, WhatIsForwardedHasOneSpellingHoweverItCame) {
  for (const auto* text : {"/a~b/%7Bx%7D%20y", "/a~b/{x}%20y", "/%61%7eb/%7bx%7d%20y"}) {
    const auto target = good(text);
    EXPECT_EQ(target.resource.name(), "a~b/{x} y");
    EXPECT_EQ(target.path, "/a~b/%7Bx%7D%20y");
  }
}

TEST(TargetTest, AnEscapeIsUndoneOnlyOnce) {
  const auto target = good("/a%2541");
  EXPECT_EQ(target.resource.name(), "a%41");
  EXPECT_EQ(target.path, "/a%2541");
}

TEST(TargetTest, AParameterOfASegmentIsPartOfItsName) {
  EXPECT_EQ(good("/a;x=1/b").path, "/a%3Bx%3D1/b");
}

TEST(TargetTest, AQueryIsPassedOnByteForByteAndIsNotPartOfTheResource) {
  const auto target = good("/a/b?q=%2f&%zz=/../\\%00");
  EXPECT_EQ(target.resource.name(), "a/b");
  EXPECT_EQ(target.path, "/a/b");
  EXPECT_EQ(target.query, "?q=%2f&%zz=/../\\%00");
}

TEST(TargetTest, AQueryIsVisibleAscii) {
  EXPECT_THAT(reason(parse_target("/a?b#c", 0)), HasSubstr("query"));
  EXPECT_THAT(reason(parse_target("/a?b\xC3\xA9", 0)), HasSubstr("query"));
  EXPECT_THAT(reason(parse_target("/a?b\x7F", 0)), HasSubstr("query"));
  EXPECT_THAT(reason(parse_target("/a?b c", 0)), HasSubstr("query"));
}

TEST(TargetTest, PathsThatTwoReadersUnderstandDifferentlyNameNothing) {
  for (const auto* text :
       {"",          "/",      "a",      "//a",    "/a//b",      "/a/",    "/a/../b", "/a/./b",
        "/%2e%2e/a", "/a%2fb", "/a%2Fb", "/a%00b", "/a%",        "/a%2",   "/a%zz",   "/a\\b",
        "/a%5cb",    "/a%5Cb", "/a#b",   "*",      "http://h/a", "/a%0ab", "/%ff",    "/%c0%af"}) {
    EXPECT_NE(reason(parse_target(text, 0)), "") << text;
  }
}

TEST(TargetTest, TheFirstSegmentsAreTheResourceAndFewerAreNone) {
  EXPECT_EQ(good("/a/b/c", 2).resource.name(), "a/b");
  EXPECT_EQ(good("/a/b/c", 2).path, "/a/b/c");
  EXPECT_EQ(good("/a/b", 2).resource.name(), "a/b");
  EXPECT_THAT(reason(parse_target("/a", 2)), HasSubstr("above the resources"));
}

TEST(TargetTest, ADestinationIsAPathOrAUrlOfTheSameHost) {
  for (const auto* text : {"/b%20c", "http://guard:7420/b%20c", "https://GUARD:7420/%62%20c"}) {
    auto parsed = parse_destination(text, "guard:7420", 0);
    ASSERT_EQ(reason(parsed), "") << text;
    EXPECT_EQ(std::get<Target>(parsed).path, "/b%20c");
  }
  for (const auto* text :
       {"http://other:7420/b", "http://guard/b", "ftp://guard:7420/b", "//guard:7420/b", "guard:7420/b",
        "http://user@guard:7420/b", "http://guard:7420", "/b?x", "/b#x", "/a/../b", "", "http:///b"}) {
    EXPECT_NE(reason(parse_destination(text, "guard:7420", 0)), "") << text;
  }
  EXPECT_NE(reason(parse_destination("http:///b", "", 0)), "");
  EXPECT_NE(reason(parse_destination("http://my_host/b", "my-host", 0)), "");
}

}  // namespace
}  // namespace fenceguard::proxy
