// The path of a request as what it names: one spelling only.

#include <gtest/gtest.h>

#include "server/data/resource_path.hpp"

namespace fenceguard {
namespace {

std::optional<ResourcePath> read(std::string_view target, std::size_t depth = 0) {
  auto parsed = parse_resource_path(target, depth);
  if (auto* path = std::get_if<ResourcePath>(&parsed)) return *path;
  EXPECT_FALSE(std::get<BadPath>(parsed).reason.empty());
  return std::nullopt;
}

TEST(ResourcePath, ThePathIsTheResourceAndTheObject) {
  const auto path = read("/accounts/42");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->resource.name(), "accounts/42");
  EXPECT_EQ(path->path, "accounts/42");
}

TEST(ResourcePath, TwoEncodingsOfOnePathAreOneResource) {
  const auto plain = read("/accounts/b");
  const auto encoded = read("/acc%6Funts/%62");
  ASSERT_TRUE(plain && encoded);
  EXPECT_EQ(plain->resource, encoded->resource);
  EXPECT_EQ(plain->path, encoded->path);
}

TEST(ResourcePath, IsDecodedOnceOnly) {
  const auto path = read("/a%252eb");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->path, "a%2eb");
}

TEST(ResourcePath, SpacesAndUtf8AreDecoded) {
  const auto path = read("/caf%C3%A9/a%20b");
  ASSERT_TRUE(path);
  EXPECT_EQ(path->path, "caf\xC3\xA9/a b");
}

TEST(ResourcePath, WhatCouldBeReadInTwoWaysIsBad) {
  for (const char* target :
       {"",       "/",      "*",      "accounts/42", "http://host/a", "//",      "//a",       "/a/",
        "/a//b",  "/.",     "/..",    "/a/..",       "/a/./b",        "/a/../b", "/%2e%2e/b", "/a/%2E",
        "/a%2fb", "/a%2Fb", "/a%00b", "/a%0Ab",      "/a%7F",         "/a?b=1",  "/a?",       "/a#b",
        "/a%",    "/a%4",   "/a%zz",  "/%C3",        "/%ff",          "/a%C2%80"}) {
    EXPECT_FALSE(read(target)) << target;
  }
}

TEST(ResourcePath, HasAtMost512Bytes) {
  EXPECT_TRUE(read("/" + std::string(512, 'a')));
  EXPECT_FALSE(read("/" + std::string(513, 'a')));
}

TEST(ResourcePath, WithADepthTheFirstSegmentsAreTheResource) {
  const auto path = read("/accounts/42/balance/today", 2);
  ASSERT_TRUE(path);
  EXPECT_EQ(path->resource.name(), "accounts/42");
  EXPECT_EQ(path->path, "accounts/42/balance/today");
  const auto exact = read("/accounts/42", 2);
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->resource.name(), "accounts/42");
}

TEST(ResourcePath, APathAboveTheDepthIsBad) {
  EXPECT_FALSE(read("/accounts", 2));
  EXPECT_FALSE(read("/accounts/42", 3));
  EXPECT_FALSE(read("/accounts/", 2));
}

}  // namespace
}  // namespace fenceguard
