// The JSON object in the body of a call: strict in types, members, size and depth.

#include <gtest/gtest.h>

#include "guard/error.hpp"
#include "guard/sidecar/json_body.hpp"

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
