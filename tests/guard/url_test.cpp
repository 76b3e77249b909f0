#include "guard/source/url.hpp"

#include <gtest/gtest.h>

#include "guard/error.hpp"

namespace fenceguard {
namespace {

// What parsing text throws; empty if it throws nothing.
std::string refusal(const std::string& text) {
  try {
    (void)Url::parse(text);
    return "";
  } catch (const InvalidInput& error) {
    return error.what();
  }
}

TEST(Url, APathWithoutSlashesIsAllOfTheRest) {
  const auto url = Url::parse("sqlite:data/fence guard.db");
  EXPECT_EQ(url.scheme, "sqlite");
  EXPECT_EQ(url.path, "data/fence guard.db");
  EXPECT_EQ(url.authority, "");
  EXPECT_EQ(Url::parse("sqlite:/var/lib/x.db").path, "/var/lib/x.db");
  EXPECT_EQ(Url::parse("sqlite:a%20b%3F.db").path, "a b?.db");
  // The place for a name in a pattern is no escape.
  EXPECT_EQ(Url::parse("redis://h?lock_key=my:%s%3A%25s").parameters.at("lock_key"), "my:%s:%s");
  EXPECT_EQ(Url::parse("sqlite:mail@home.db").path, "mail@home.db");
}

TEST(Url, AllPartsAreFound) {
  const auto url =
      Url::parse("Postgres://joe:p%40ss%3Aw%2Ford@h1:5432,h2:5433/db?sslmode=require&application=a%26b");
  EXPECT_EQ(url.scheme, "postgres");
  EXPECT_EQ(url.user, "joe");
  EXPECT_EQ(url.password, "p@ss:w/ord");
  EXPECT_EQ(url.authority, "h1:5432,h2:5433");
  EXPECT_EQ(url.path, "/db");
  EXPECT_EQ(url.parameters.at("sslmode"), "require");
  EXPECT_EQ(url.parameters.at("application"), "a&b");
}

TEST(Url, PartsMayBeLeftOut) {
  EXPECT_EQ(Url::parse("redis://cache").path, "");
  EXPECT_EQ(Url::parse("redis://:secret@cache/0").user, "");
  EXPECT_EQ(Url::parse("redis://:secret@cache/0").password, "secret");
  EXPECT_EQ(Url::parse("redis://joe@cache/0").password, "");
  EXPECT_EQ(Url::parse("redis://[::1]:6379/0").authority, "[::1]:6379");
  EXPECT_EQ(Url::parse("redis://cache?prefix=a").parameters.at("prefix"), "a");
  EXPECT_EQ(Url::parse("redis://cache?prefix=").parameters.at("prefix"), "");
}

TEST(Url, WhatIsNoUrlIsRefused) {
  for (const auto* text :
       {"", "fenceguard.db", ":x", "//host", "a b:x", "sqlite:%zz", "sqlite:x?a", "sqlite:x?=1",
        "sqlite:x?a=1&&b=2", "sqlite:x?a=1&a=2", "redis://h?a=%4", "sqlite:a%00b", "redis://a%00@h"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
}

TEST(Url, NothingPrintsThePassword) {
  EXPECT_EQ(Url::parse("redis://joe:hunter2@cache/0?fair=1").redacted(), "redis://joe:***@cache/0?fair=1");
  EXPECT_EQ(Url::parse("redis://:hunter2@cache/0").redacted(), "redis://:***@cache/0");
  EXPECT_EQ(Url::parse("postgres://h/db?password=hunter2").redacted(), "postgres://h/db?password=***");
  EXPECT_EQ(Url::parse("sqlite:fenceguard.db").redacted(), "sqlite:fenceguard.db");
}

// A password with a bare slash or question mark ends the authority early, and would then be printed as a
// host, a path or a parameter.
TEST(Url, APasswordThatWasNotEncodedIsRefusedAndNotPrinted) {
  for (const auto* text :
       {"redis://joe:hunter2/x@cache/0", "redis://joe:hunter2?x@cache/0", "redis://joe:hunter2?x=1@cache/0",
        "redis://joe:1/hunter2@cache", "redis://j:hunter2%zz@h", "redis://j:x?hunter2=1&hunter2=2@h"}) {
    const auto message = refusal(text);
    EXPECT_NE(message, "") << text;
    EXPECT_EQ(message.find("hunter2"), std::string::npos) << message;
  }
}

TEST(Url, AnUnknownParameterListsTheKnownOnes) {
  const auto url = Url::parse("redis://cache?fare=1");
  url.require_known_parameters({"fare"});
  try {
    url.require_known_parameters({"fair", "prefix"});
    FAIL() << "an unknown parameter was accepted";
  } catch (const InvalidInput& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("fare"), std::string::npos) << message;
    EXPECT_NE(message.find("fair, prefix"), std::string::npos) << message;
  }
  EXPECT_THROW(url.require_known_parameters({}), InvalidInput);
}

}  // namespace
}  // namespace fenceguard
