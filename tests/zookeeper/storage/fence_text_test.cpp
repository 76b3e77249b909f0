#include <gtest/gtest.h>

#include "adapters/zookeeper/fences/fence_paths.hpp"
#include "guard/support/fence_text.hpp"

namespace fenceguard::zookeeper {
namespace {

TEST(FencePaths, ANameIsOneSegmentThatZooKeeperTakes) {
  EXPECT_EQ(segment_of(Resource{"accounts/42"}), "accounts%2F42");
  EXPECT_EQ(segment_of(Resource{"100%"}), "100%25");
  EXPECT_EQ(segment_of(Resource{"K\xc3\xb6ln"}), "K\xc3\xb6ln");
  EXPECT_EQ(segment_of(Resource{"\xee\x80\x80"}), "%EE%80%80") << "private use";
  EXPECT_EQ(segment_of(Resource{"\xf0\x9f\x94\x92"}), "%F0%9F%94%92") << "beyond the first plane";
  EXPECT_EQ(segment_of(Resource{"\xef\xbf\xbd"}), "%EF%BF%BD");
  EXPECT_EQ(segment_of(Resource{"\xef\xbf\xaf"}), "\xef\xbf\xaf");
}

TEST(FencePaths, NoTwoNamesAreOneSegmentAndNoTwoSegmentsOneName) {
  for (const char* name : {"a/b", "a%2Fb", "a%2fb", "\xf0\x9f\x94\x92", "K\xc3\xb6ln", "%"}) {
    const Resource resource{name};
    EXPECT_EQ(resource_of(segment_of(resource)), resource) << name;
  }
  for (const char* segment : {"a%2fb", "%61", "a%", "%2", "", "%00", "a%2F%2Fb"})
    EXPECT_FALSE(resource_of(segment)) << segment;
}

TEST(FencePaths, WhatLiesBesideOursIsTheUsers) {
  const FencePaths paths{"/app"};
  for (const char* own : {"/app/fences", "/app/fences/a", "/app/floor", "/app/offset", "/app/locks/a/b",
                          "/app/rebased", "/app/lock_paths", "/app/lock_paths/jobs", "/app/highest"})
    EXPECT_TRUE(paths.is_reserved(own)) << own;
  for (const char* other : {"/app", "/app/fences2", "/app/data", "/fences", "/app/x/fences", "/"})
    EXPECT_FALSE(paths.is_reserved(other)) << other;
}

TEST(FenceRecord, IsReadAsItWasWritten) {
  const Fence fences[] = {{Token{1}, Holder{}, std::nullopt, false},
                          {Token{INT64_MAX}, Holder{"h"}, Sequence{0}, true},
                          {Token{7}, Holder{"-"}, Sequence{INT64_MAX}, false}};
  for (const auto& fence : fences) EXPECT_EQ(parse_fence(text_of(fence)), fence);
  EXPECT_EQ(text_of(fences[1]), "9223372036854775807 0 closed h");
}

TEST(FenceRecord, NothingElseIsAFence) {
  for (const char* text : {"", "1", "1 -", "1 - open", "0 - open ", "01 - open ", "1 -1 open ", "1 01 open ",
                           "1 - shut ", "1 - open a b", "1  - open ", "-1 - open ", "1 - open \n"})
    EXPECT_FALSE(parse_fence(text)) << text;
}

}  // namespace
}  // namespace fenceguard::zookeeper
