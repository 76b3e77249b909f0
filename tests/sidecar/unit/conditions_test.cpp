// If-Match and If-None-Match, read and evaluated for reads.

#include <gtest/gtest.h>

#include "server/data/conditions.hpp"

namespace fenceguard {
namespace {

std::optional<Conditions> read(const std::vector<std::pair<std::string, std::string>>& pairs) {
  http::Fields fields;
  for (const auto& [name, value] : pairs) fields.add(name, value);
  auto parsed = parse_conditions(fields);
  if (auto* conditions = std::get_if<Conditions>(&parsed)) return *conditions;
  return std::nullopt;
}

TEST(Conditions, NoneIsNone) {
  const auto conditions = read({{"Host", "h"}});
  ASSERT_TRUE(conditions);
  EXPECT_FALSE(conditions->if_match);
  EXPECT_FALSE(conditions->if_none_match);
}

TEST(Conditions, AListKeepsItsTagsAsWritten) {
  const auto conditions = read({{"If-Match", "\"a\", W/\"b,c\" ,, \"\""}});
  ASSERT_TRUE(conditions && conditions->if_match);
  EXPECT_EQ(conditions->if_match->etags, (std::vector<std::string>{"\"a\"", "W/\"b,c\"", "\"\""}));
  EXPECT_FALSE(conditions->if_match->any);
}

TEST(Conditions, SeveralLinesAreOneList) {
  const auto conditions = read({{"If-None-Match", "\"a\""}, {"if-none-match", "\"b\""}});
  ASSERT_TRUE(conditions && conditions->if_none_match);
  EXPECT_EQ(conditions->if_none_match->etags, (std::vector<std::string>{"\"a\"", "\"b\""}));
}

TEST(Conditions, AStarIsAny) {
  const auto conditions = read({{"If-None-Match", " * "}});
  ASSERT_TRUE(conditions && conditions->if_none_match);
  EXPECT_TRUE(conditions->if_none_match->any);
}

TEST(Conditions, MalformedOnesAreRefused) {
  for (const char* value : {"", "a", "\"a", "a\"", "\"a\" \"b\"", "*, \"a\"", "\"a\", *", "w/\"a\"", "W/a",
                            ",", "W/", "\"a\tb\"", "**"}) {
    EXPECT_FALSE(read({{"If-Match", value}})) << value;
  }
  EXPECT_FALSE(read({{"If-Match", "*"}, {"If-Match", "\"a\""}}));
  EXPECT_FALSE(read({{"If-Match", "*"}, {"If-Match", "*"}}));
}

TEST(Conditions, AReadIsNotModifiedIfItsTagIsKnown) {
  const auto known = *read({{"If-None-Match", "\"x\", W/\"a\""}});
  EXPECT_EQ(evaluate_read(known, "\"a\""), ReadCondition::not_modified);
  EXPECT_EQ(evaluate_read(known, "\"b\""), ReadCondition::proceed);
  EXPECT_EQ(evaluate_read(known, ""), ReadCondition::proceed);
  EXPECT_EQ(evaluate_read(*read({{"If-None-Match", "*"}}), "\"b\""), ReadCondition::not_modified);
}

TEST(Conditions, IfMatchComparesStrongly) {
  EXPECT_EQ(evaluate_read(*read({{"If-Match", "\"a\""}}), "\"a\""), ReadCondition::proceed);
  EXPECT_EQ(evaluate_read(*read({{"If-Match", "W/\"a\""}}), "\"a\""), ReadCondition::failed);
  EXPECT_EQ(evaluate_read(*read({{"If-Match", "*"}}), ""), ReadCondition::failed);
  EXPECT_EQ(evaluate_read(*read({{"If-Match", "*"}}), "\"a\""), ReadCondition::proceed);
}

}  // namespace
}  // namespace fenceguard
