#include "server/proxy/request/location.hpp"

#include <gtest/gtest.h>

namespace fenceguard::proxy {
namespace {

const Origin plain{"127.0.0.1:8080", "", false, false};
const Origin based{"store", "/dav/files", false, false};
const Origin secure{"store:443", "", false, true};

TEST(LocationTest, TheUpstreamsOwnAddressIsCutToAPath) {
  EXPECT_EQ(as_seen_by_client("http://127.0.0.1:8080/a/b?c#d", plain), "/a/b?c#d");
  EXPECT_EQ(as_seen_by_client("HTTP://127.0.0.1:8080/a", plain), "/a");
  EXPECT_EQ(as_seen_by_client("//127.0.0.1:8080/a", plain), "/a");
  EXPECT_EQ(as_seen_by_client("http://127.0.0.1:8080", plain), "/");
  EXPECT_EQ(as_seen_by_client("http://127.0.0.1:8080?x", plain), "/?x");
  EXPECT_EQ(as_seen_by_client("https://Store/a", secure), "/a");
  EXPECT_EQ(as_seen_by_client("https://store:443/a", secure), "/a");
  EXPECT_EQ(as_seen_by_client("http://store:80/dav/files/a", based), "/a");
}

TEST(LocationTest, TheBasePathIsTheGuardsRoot) {
  EXPECT_EQ(as_seen_by_client("http://store/dav/files/a/b", based), "/a/b");
  EXPECT_EQ(as_seen_by_client("/dav/files/a", based), "/a");
  EXPECT_EQ(as_seen_by_client("/dav/files", based), "/");
  EXPECT_EQ(as_seen_by_client("/dav/files?x", based), "/?x");
}

TEST(LocationTest, WhatIsNotTheUpstreamsOwnStaysAsItIs) {
  for (const std::string other :
       {"http://elsewhere/a", "https://127.0.0.1:8080/a", "http://127.0.0.1:80801/a", "http://127.0.0.1/a",
        "http://127.0.0.1:8080@elsewhere/a", "http://127.0.0_1:8080/a", "http://127.0.0.1:8080.elsewhere/a",
        "http:/a", "http:", "a/b", "../a", "?x", "/a", "", "mailto:a@b"})
    EXPECT_EQ(as_seen_by_client(other, plain), other);
  for (const std::string beside : {"http://store/dav/filesystem/a", "/dav/other", "/", "http://store/dav"})
    EXPECT_EQ(as_seen_by_client(beside, based), beside);
}

TEST(LocationTest, APathThatAloneWouldNameAnotherHostKeepsItsOrigin) {
  EXPECT_EQ(as_seen_by_client("http://127.0.0.1:8080//elsewhere/a", plain),
            "http://127.0.0.1:8080//elsewhere/a");
  EXPECT_EQ(as_seen_by_client("/dav/files//elsewhere/a", based), "/dav/files//elsewhere/a");
}

TEST(LocationTest, OnlyTwoFieldsAreReferences) {
  EXPECT_TRUE(is_reference("Location"));
  EXPECT_TRUE(is_reference("content-location"));
  EXPECT_FALSE(is_reference("Link"));
}

}  // namespace
}  // namespace fenceguard::proxy
