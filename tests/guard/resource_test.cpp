#include "guard/resource.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "guard/error.hpp"

namespace fenceguard {
namespace {

TEST(Resource, NamesOfOneTo512BytesOfUtf8AreResources) {
  const std::vector<std::string> good{
      "a",
      "accounts/42",
      "a/b/c/d",
      "with space",
      "...",
      "a/...",
      ".hidden",
      "a..b",
      "%2e%2e",  // percent signs are ordinary here; who decodes paths does it before
      "caf\xC3\xA9",
      "\xE6\xBC\xA2\xE5\xAD\x97",
      "\xF0\x9F\x98\x80",
      "\xF4\x8F\xBF\xBF",  // U+10FFFF
      "\xEE\x80\x80",      // U+E000, just above the surrogates
      "\xED\x9F\xBF",      // U+D7FF, just below them
      "\xC2\xA0",          // U+00A0, just above the C1 controls
      "\\",
      "?query",
      "#",
      std::string(512, 'x'),
  };
  for (const auto& name : good) {
    EXPECT_EQ(Resource::objection(name), "") << name;
    ASSERT_TRUE(Resource::parse(name)) << name;
    EXPECT_EQ(Resource{name}.name(), name);
  }
}

std::vector<std::string> bad_names() {
  return {"",
          std::string(513, 'x'),
          "/",
          "//",
          "/a",
          "a/",
          "a//b",
          ".",
          "..",
          "a/.",
          "a/..",
          "./a",
          "../a",
          "a/./b",
          "a/../b",
          std::string{"a\0b", 3},
          std::string{"\0", 1},
          "a\nb",
          "a\r",
          "\t",
          "\x1B[2J",
          "\x7F",
          "\xC2\x80",  // U+0080, the first C1 control
          "\xC2\x9F",  // U+009F, the last
          "\x80",      // a continuation without a start
          "\xC3",      // a start without its continuation
          "\xC3(",
          "\xE2\x82",
          "\xF0\x9F\x98",
          "\xC0\xAF",  // overlong slash
          "\xC1\xBF",
          "\xE0\x80\xAF",  // overlong slash
          "\xE0\x9F\xBF",
          "\xF0\x80\x80\xAF",  // overlong slash
          "\xF0\x8F\xBF\xBF",
          "\xED\xA0\x80",  // surrogates
          "\xED\xBF\xBF",
          "\xF4\x90\x80\x80",  // above U+10FFFF
          "\xF5\x80\x80\x80",
          "\xFE",
          "\xFF",
          "a/\xFF/b"};
}

TEST(Resource, EverythingElseIsRefusedWithTheRuleItBreaks) {
  for (const auto& name : bad_names()) {
    EXPECT_NE(Resource::objection(name), "") << name;
    EXPECT_FALSE(Resource::parse(name)) << name;
    EXPECT_THROW(Resource{name}, InvalidInput) << name;
  }
}

TEST(Holder, IsEmptyOrVisibleAscii) {
  EXPECT_EQ(Holder{}.id(), "");
  EXPECT_EQ(Holder{""}, Holder{});
  EXPECT_EQ(Holder{"!~-_:/"}.id(), "!~-_:/");
  EXPECT_EQ(Holder{std::string(128, 'h')}.id().size(), 128u);
  for (const std::string& id :
       {std::string(129, 'h'), std::string{"a b"}, std::string{" "}, std::string{"a\n"}, std::string{"\x7F"},
        std::string{"\xC3\xA9"}, std::string{"a\0", 2}}) {
    EXPECT_THROW(Holder{id}, InvalidInput) << id;
    EXPECT_FALSE(Holder::parse(id)) << id;
  }
}

TEST(Holder, WrittenOutItIsNeverEmpty) {
  EXPECT_FALSE(Holder::parse(""));
}

TEST(Holder, RandomOnesAre128BitsAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 1'000; ++i) seen.insert(Holder::random().id());
  EXPECT_EQ(seen.size(), 1'000u);
  for (const auto& id : seen) {
    EXPECT_EQ(id.size(), 32u);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
}

}  // namespace
}  // namespace fenceguard
