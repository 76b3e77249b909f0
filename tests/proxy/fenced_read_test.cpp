// Fenced reads that a newer token overtakes while the upstream answers them.
//
// Shows: what is passed on under a claim is never what a newer token wrote, and the newer token does not wait
// for it. How: the upstream keeps a read back, before it looks at the object or in the middle of its answer,
// until the newer write has taken effect.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/fence_calls.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class FencedReadTest : public testing::Test {
 protected:
  ~FencedReadTest() override { EXPECT_THAT(upstream_.anomalies(), IsEmpty()); }

  // The answer to a read under token 3 that the upstream looks at after token 4 has written.
  http::Answer read_overtaken(const std::string& method, Pairs fields, const std::string& words = {}) {
    EXPECT_EQ(guarded_.put("/a", 3, {}, "three").status / 100, 2U);
    auto client = guarded_.connect();
    fields.emplace_back("Upstream-Do", "await=2 " + words);
    client.send(bytes_of(method, "/a", claim(3, std::move(fields))));
    (void)upstream_.wait_for("seen", 2);
    EXPECT_EQ(guarded_.put("/a", 4, {}, "four").status, 204U);
    return client.receive(method == "HEAD");
  }

  double verdicts(const std::string& verdict) {
    return guarded_.metric("fenceguard_verdicts_total{storage=\"http\",verdict=\"" + verdict + "\"}");
  }

  Upstream upstream_;
  Guarded guarded_{upstream_.url()};
};

TEST_F(FencedReadTest, WhatANewerTokenWroteMeanwhileIsNotPassedOn) {
  const auto read = read_overtaken("GET", {});
  EXPECT_EQ(read.status, 412U);
  EXPECT_EQ(read.field("Fencing-Verdict"), "stale");
  EXPECT_EQ(read.field("Fencing-Highest"), "4");
  EXPECT_THAT(read.body, Not(HasSubstr("four")));
  EXPECT_EQ(verdicts("stale"), 1);
  EXPECT_EQ(verdicts("admitted"), 2) << "the writes";
}

TEST_F(FencedReadTest, NorIsItsHead) {
  const auto read = read_overtaken("HEAD", {});
  EXPECT_EQ(read.status, 412U);
  EXPECT_EQ(read.field("ETag"), std::nullopt);
}

TEST_F(FencedReadTest, NorIsAPartOfIt) {
  const auto read = read_overtaken("GET", {{"Range", "bytes=0-1"}});
  EXPECT_EQ(read.status, 412U);
  EXPECT_EQ(read.field("Content-Range"), std::nullopt);
}

TEST_F(FencedReadTest, NorThatItIsWhatTheClientHas) {
  const auto read = read_overtaken("GET", {{"If-None-Match", "\"x\""}}, "status=304");
  EXPECT_EQ(read.status, 412U);
  EXPECT_EQ(read.field("Fencing-Verdict"), "stale");
}

TEST_F(FencedReadTest, ARevokedHoldersReadIsNotPassedOnEither) {
  EXPECT_EQ(guarded_.put("/a", 3, {}, "three").status, 201U);
  auto client = guarded_.connect();
  client.send(bytes_of("GET", "/a", claim(3, {{"Upstream-Do", "await=2"}})));
  (void)upstream_.wait_for("seen", 2);
  // It does not wait for reads.
  (void)wait_for<FenceView>(
      [&](Done<FenceView> done) { guarded_.lanes().revoke(Resource{"a"}, {}, std::move(done)); });
  EXPECT_EQ(guarded_.put("/b", 1).status, 201U);
  EXPECT_EQ(client.receive().status, 412U);
}

// Bytes that a newer write could have changed in place are not passed on; those from before it may have been.
TEST_F(FencedReadTest, AnAnswerThatIsOvertakenInItsMiddleIsCut) {
  constexpr std::size_t bytes = 6'000'000;
  EXPECT_EQ(guarded_.put("/a", 3, {}, "three").status, 201U);
  auto client = guarded_.connect();
  client.send(bytes_of("GET", "/a", claim(3, {{"Upstream-Do", "await-mid=2 body=6000000"}})));
  EXPECT_GT(client.take(100'000), 0U) << "it has begun, admitted";
  EXPECT_EQ(guarded_.put("/a", 4, {}, "four").status, 204U);
  EXPECT_LT(client.receive_to_end().size(), bytes / 2);
  EXPECT_EQ(verdicts("stale"), 1);
}

TEST_F(FencedReadTest, AReadIsOutOfItsLaneWhenItIsOver) {
  EXPECT_EQ(guarded_.put("/a", 3, {}, "three").status, 201U);
  for (const auto* words : {"", "drop", "half", "garbage", "body=3000000", "body=3000000 half"}) {
    auto client = guarded_.connect();
    client.send(bytes_of("GET", "/a", claim(3, {{"Upstream-Do", words}, {"Connection", "close"}})));
    (void)client.receive_to_end();
    SCOPED_TRACE(words);
    wait_until([&] { return guarded_.lanes().figures().lanes == 0; });
  }
}

}  // namespace
}  // namespace fenceguard::test
