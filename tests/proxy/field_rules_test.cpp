#include "adapters/http/field_rules.hpp"

#include <gtest/gtest.h>

#include "adapters/http/field_names.hpp"

namespace fenceguard::proxy {
namespace {

TEST(FieldRulesTest, NamesAreTheSameWithoutRegardToCaseAndUnderscores) {
  EXPECT_TRUE(is_same_name("X-HTTP-Method", "x_http-METHOD"));
  EXPECT_FALSE(is_same_name("X-HTTP-Method", "X-HTTP-Methods"));
  EXPECT_TRUE(begins_with_name("fencing_token", "Fencing-"));
  EXPECT_FALSE(begins_with_name("Fenc", "Fencing-"));
}

TEST(FieldRulesTest, OnlyTheGuardSpeaksOfFencesToClients) {
  EXPECT_FALSE(passes_to_client("Fencing-Verdict"));
  EXPECT_FALSE(passes_to_client("fencing-highest"));
  EXPECT_FALSE(passes_to_client("Transfer-Encoding"));
  EXPECT_FALSE(passes_to_client("Proxy-Authenticate"));
  EXPECT_TRUE(passes_to_client("ETag"));
  EXPECT_TRUE(passes_to_client("WWW-Authenticate"));
}

http::Fields one(const char* name, const char* value) {
  http::Fields fields;
  fields.add("Accept", "*");
  fields.add(name, value);
  return fields;
}

TEST(FieldRulesTest, ConnectionTakesNothingAwayThatARequestIsJudgedOrReadBy) {
  for (const auto* listed : {"Fencing-Token", "close, fencing_holder", "authorization", "HOST",
                             "Content-Length", "x ,Transfer-Encoding"})
    EXPECT_NE(objection_to(one("connection", listed)), "") << listed;
  EXPECT_EQ(objection_to(one("Connection", "close, TE, X-Host")), "");
}

TEST(FieldRulesTest, AForwardedWhoseQuoteDoesNotEndIsRefused) {
  for (const auto* odd : {"for=\"a", "for=a;host=\"b\\\"", "\"\"\""})
    EXPECT_NE(objection_to(one("Forwarded", odd)), "") << odd;
  for (const auto* fine : {"for=a", "for=\"a\";host=\"b\\\"c\"", ""})
    EXPECT_EQ(objection_to(one("forwarded", fine)), "") << fine;
}

TEST(FieldRulesTest, ElementsOfAListComeWithoutBlanks) {
  std::string seen;
  for_each_element(" a ,b,,\tc d ,", [&](std::string_view element) { seen.append(element).append("|"); });
  EXPECT_EQ(seen, "a|b|c d|");
}

}  // namespace
}  // namespace fenceguard::proxy
