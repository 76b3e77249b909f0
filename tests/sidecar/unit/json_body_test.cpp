// The JSON object in the body of a call: strict in types, members, size and depth.

#include <gtest/gtest.h>

#include "guard/error.hpp"
#include "server/control/json_body.hpp"

namespace fenceguard {
namespace {

TEST(JsonBody, MembersAreTakenOneByOne) {
  JsonBody body{R"({"resource":"a","ttl_ms":500,"token":"9223372036854775807","holder":"me"})"};
  EXPECT_EQ(body.text("resource"), "a");
  EXPECT_EQ(body.integer("ttl_ms"), 500);
  EXPECT_EQ(body.token("token"), Token{9223372036854775807});
  EXPECT_EQ(body.holder("holder"), Holder{"me"});
  EXPECT_FALSE(body.text("wait_ms"));
  EXPECT_NO_THROW(body.require_taken());
}

TEST(JsonBody, AnEmptyBodyIsAnEmptyObject) {
  EXPECT_NO_THROW(JsonBody{""}.require_taken());
  EXPECT_NO_THROW(JsonBody{"{}"}.require_taken());
}

TEST(JsonBody, AMemberThatNobodyAskedForIsAnError) {
  EXPECT_THROW(JsonBody{R"({"tll_ms":1})"}.require_taken(), InvalidInput);
}

std::string objection(const std::string& text) {
  try {
    JsonBody{text}.require_taken();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

TEST(JsonBody, AnObjectionNamesItsMember) {
  EXPECT_EQ(objection(R"({"tll_ms":1})"), "The member 'tll_ms' is not known here.");
  EXPECT_EQ(objection(R"({"ttl_ms":1,"ttl_ms":2})"), "The member 'ttl_ms' comes more than once.");
  EXPECT_EQ(objection("{\"" + std::string(1000, 'x') + "\":1}"),
            "The member whose name has 1000 bytes is not known here.");
}

TEST(JsonBody, AMemberThatComesTwiceIsAnErrorHoweverItIsWritten) {
  for (const char* text :
       {R"({"a":1,"a":1})", R"({"a":"x","b":2,"a":"y"})", R"({"a":1,"\u0061":2})", R"({"a" : 1, "a"
:2})",
        R"({"a":{"b":1},"c":[1,{"c":"}"}],"a":2})", R"({"q\"":1,"q\u0022":2})", R"({"":1,"":2})"})
    EXPECT_NE(objection(text).find("more than once"), std::string::npos) << text;
  for (const char* text : {R"({"a":1,"A":2})", R"({"a":"a","b":"b"})", R"({"a":{"a":1}})",
                           R"({"a":["a","a"]})", R"({"a":"\":1,\"a","b":1})", R"({"a\\":1,"a":2})"})
    EXPECT_EQ(objection(text).find("more than once"), std::string::npos) << text;
}

TEST(JsonBody, WrongTypesAreErrors) {
  EXPECT_THROW((void)JsonBody{R"({"token":34})"}.token("token"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"token":"034"})"}.token("token"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"token":"0"})"}.token("token"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"ttl_ms":"1"})"}.integer("ttl_ms"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"ttl_ms":1.5})"}.integer("ttl_ms"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"ttl_ms":1e3})"}.integer("ttl_ms"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"ttl_ms":18446744073709551615})"}.integer("ttl_ms"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"ttl_ms":null})"}.integer("ttl_ms"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"resource":["a"]})"}.text("resource"), InvalidInput);
  EXPECT_THROW((void)JsonBody{R"({"holder":""})"}.holder("holder"), InvalidInput);
}

TEST(JsonBody, WhatIsNoObjectIsAnError) {
  for (const char* text : {"[]", "1", "null", "\"a\"", "{", "{\"a\":1,}", "{'a':1}", "{\"a\":1} x", "\xFF",
                           "{\"a\":NaN}", "{\"a\":\"\xC3\"}"}) {
    EXPECT_THROW(JsonBody{text}, InvalidInput) << text;
  }
}

TEST(JsonBody, TooDeepOrTooLargeIsAnError) {
  const auto nested = [](std::size_t depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_NO_THROW(JsonBody{nested(16)});
  EXPECT_THROW(JsonBody{nested(17)}, InvalidInput);
  EXPECT_THROW(JsonBody{nested(30'000)}, InvalidInput);
  EXPECT_THROW(JsonBody{"{\"a\":\"" + std::string(JsonBody::bytes_max, 'x') + "\"}"}, InvalidInput);
}

}  // namespace
}  // namespace fenceguard
