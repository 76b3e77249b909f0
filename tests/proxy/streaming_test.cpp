// Bodies that are too large to be held: passed on piece by piece both ways, with bounded memory, and what
// happens when either side ends too soon.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t mebibyte = 1024 * 1024;

// Memory of this process that is in use, which the proxy is a part of.
std::size_t resident_bytes() {
  std::ifstream status{"/proc/self/statm"};
  std::size_t total = 0;
  std::size_t resident = 0;
  status >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class StreamingTest : public testing::Test {
 protected:
  ~StreamingTest() override { EXPECT_THAT(upstream_.anomalies(), IsEmpty()); }

  // The head of a PUT whose body follows.
  static std::string head_of(const std::string& framing, const std::string& words) {
    return "PUT /big HTTP/1.1\r\nHost: guard\r\nFencing-Token: 1\r\nFencing-Holder: h\r\n" + framing +
           "\r\nUpstream-Do: " + words + "\r\n\r\n";
  }

  Upstream upstream_;
  Guarded guarded_{upstream_.url()};
};

TEST_F(StreamingTest, ALargeUploadIsPassedOnInBoundedMemory) {
  const auto bytes = static_cast<std::size_t>(scaled(256)) * mebibyte;
  auto client = guarded_.connect();
  const auto before = resident_bytes();
  client.send(head_of("Content-Length: " + std::to_string(bytes), "count"));
  const std::string piece(mebibyte, 'x');
  for (std::size_t sent = 0; sent < bytes; sent += piece.size()) ASSERT_TRUE(client.send(piece));
  EXPECT_EQ(client.receive().status, 201U);
  EXPECT_EQ(upstream_.applied().at(0).size, static_cast<std::int64_t>(bytes));
  if constexpr (slowdown == 1) {
    EXPECT_LT(resident_bytes(), before + 16 * mebibyte);
  }
}

TEST_F(StreamingTest, ALargeBodyInChunksArrivesWholeInChunks) {
  auto client = guarded_.connect();
  client.send(head_of("Transfer-Encoding: chunked", "count"));
  std::string piece(100'000, 'y');
  for (int chunk = 0; chunk < 20; ++chunk) client.send("186a0\r\n" + piece + "\r\n");
  client.send("0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 201U);
  EXPECT_EQ(upstream_.applied().at(0).size, 2'000'000);
  EXPECT_THAT(upstream_.seen().at(0).head, HasSubstr("Transfer-Encoding: chunked\r\n"));
}

TEST_F(StreamingTest, ALargeDownloadIsPassedOnInEveryFraming) {
  for (const auto* framing : {"", " chunked", " until-close"}) {
    const auto response =
        guarded_.send("GET", "/any", {{"Upstream-Do", "status=200 body=3000000" + std::string{framing}}});
    EXPECT_EQ(response.status, 200U);
    EXPECT_EQ(response.body.size(), 3'000'000U) << framing;
  }
}

TEST_F(StreamingTest, ALargeAnswerToAWriteIsPassedOnAndTheLaneLeft) {
  const auto response = guarded_.put("/a", 1, "status=200 body=1000000");
  EXPECT_EQ(response.body.size(), 1'000'000U);
  EXPECT_EQ(verdict(response), "admitted");
  EXPECT_EQ(guarded_.service().lanes().in_flight, 0);
  EXPECT_EQ(guarded_.service().lanes().closed, 0);
  EXPECT_EQ(guarded_.put("/a", 2).status, 204U);
}

TEST_F(StreamingTest, AHalfLargeAnswerToAWriteIsNotBegunAndTheWriteUnknown) {
  const auto response = guarded_.put("/a", 1, "status=200 half body=2000000");
  EXPECT_EQ(response.status, 502U);
  EXPECT_EQ(verdict(response), "unknown");
  EXPECT_EQ(guarded_.service().lanes().closed, 1);
}

TEST_F(StreamingTest, AnAnswerToAWriteThatIsTooLargeToBeHeldGoesOutWithoutAVerdict) {
  const auto response = guarded_.put("/a", 1, "status=200 body=3000000");
  EXPECT_EQ(response.body.size(), 3'000'000U);
  EXPECT_EQ(verdict(response), "");
  EXPECT_EQ(field(response, "Fencing-Highest"), "1");
  EXPECT_EQ(guarded_.put("/a", 2).status, 204U);
}

TEST_F(StreamingTest, AHalfOfSuchAnAnswerIsCutAndTheWriteUnknown) {
  auto client = guarded_.connect();
  client.send(bytes_of("PUT", "/a", claim(1, {{"Upstream-Do", "status=200 half body=6000000"}}), "x"));
  EXPECT_LT(client.receive_to_end().size(), 5'000'000U);
  EXPECT_EQ(guarded_.service().lanes().closed, 1);
}

TEST_F(StreamingTest, ClientThatReadsNothingDoesNotHoldTheLane) {
  auto client = guarded_.connect();
  client.send(bytes_of("PUT", "/a", claim(1, {{"Upstream-Do", "status=200 body=40000000"}}), "x"));
  EXPECT_THAT(upstream_.wait_for("seen"), SizeIs(1));
  EXPECT_EQ(guarded_.put("/a", 2).status, 204U);
  EXPECT_EQ(guarded_.metric("fenceguard_unknown_total"), 0);
  EXPECT_LT(client.receive_to_end().size(), 40'000'000U);
}

// In front of an upload that never ends, of which the upstream has seen the beginning.
class EndlessUploadTest : public StreamingTest {
 protected:
  EndlessUploadTest() {
    const std::string chunk = "10000\r\n" + std::string(65536, 'x') + "\r\n";
    // More than a MiB at once, so that it is not waited for while this test stands still.
    std::string beginning = head_of("Transfer-Encoding: chunked", "count");
    for (int i = 0; i < 32; ++i) beginning += chunk;
    client_.send(beginning);
    endless_ = std::async(std::launch::async, [this, chunk] {
      while (!is_over_ && client_.send(chunk)) std::this_thread::sleep_for(2ms);
    });
    EXPECT_THAT(upstream_.wait_for("seen"), SizeIs(1));
  }
  ~EndlessUploadTest() override { is_over_ = true; }

  // The upload's answer, which comes while it goes on.
  auto answer() {
    auto received = client_.receive();
    is_over_ = true;
    endless_.get();
    return received;
  }

  static GuardedOptions impatient() {
    GuardedOptions options;
    options.limits.body_max = 500ms * slowdown;
    options.lane.settle = 4s;
    return options;
  }

  Guarded impatient_{upstream_.url(), impatient()};

 private:
  http::RawClient client_{impatient_.connect()};
  std::atomic<bool> is_over_{false};
  std::future<void> endless_;
};

TEST_F(EndlessUploadTest, IsCutOffOnceALaterHolderHasWaitedLongEnough) {
  auto later = std::async(std::launch::async, [&] {
    return http::eventually([&] { return impatient_.put("/big", 2, "count").status / 100 == 2; });
  });
  const auto cut_off = answer();
  EXPECT_TRUE(later.get());
  EXPECT_EQ(cut_off.status, 504U);
  EXPECT_EQ(cut_off.field("Fencing-Verdict"), "unknown");
  EXPECT_THAT(upstream_.applied(), SizeIs(1));
}

TEST_F(EndlessUploadTest, OfAHolderThatIsCutOffIsCutOffToo) {
  std::promise<Outcome<FenceView>> revoked;
  impatient_.lanes().revoke(Resource{"big"}, std::nullopt,
                            [&](Outcome<FenceView> outcome) { revoked.set_value(std::move(outcome)); });
  auto ruled = revoked.get_future();
  EXPECT_EQ(ruled.wait_for(http::patience), std::future_status::ready);
  EXPECT_EQ(answer().field("Fencing-Verdict"), "unknown");
  const auto outcome = ruled.get();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.fault().message, HasSubstr("the fence was closed"));
  EXPECT_EQ(verdict(impatient_.send("PUT", "/big", {{"Fencing-Token", "1"}, {"Fencing-Holder", "h"}}, "x")),
            "stale");
  EXPECT_THAT(upstream_.applied(), IsEmpty());
}

TEST_F(StreamingTest, ARedirectThatComesBeforeTheBodyWasSentProvesNothing) {
  auto client = guarded_.connect();
  client.send(head_of("Content-Length: 64000000", "early=303"));
  const std::string piece(mebibyte, 'x');
  for (int sent = 0; sent < 61; ++sent) {
    if (!client.send(piece)) break;
  }
  EXPECT_EQ(client.receive().field("Fencing-Verdict"), "unknown");
}

TEST_F(StreamingTest, AnswersOfTheStorageSayThatTheyCameThroughTheGuard) {
  EXPECT_EQ(field(guarded_.put("/a", 1), "Via"), "1.1 fenceguard");
  EXPECT_EQ(field(guarded_.send("GET", "/a"), "Via"), "1.1 fenceguard");
}

TEST_F(StreamingTest, AnEarlyRefusalIsNoticedWhileTheBodyIsSent) {
  auto client = guarded_.connect();
  client.send(head_of("Content-Length: 64000000", "early=413 close"));
  const std::string piece(mebibyte, 'x');
  auto sending = std::async(std::launch::async, [&] {
    for (int sent = 0; sent < 61; ++sent) {
      if (!client.send(piece)) break;
    }
  });
  sending.get();
  const auto refused = client.receive();
  EXPECT_EQ(refused.status, 413U);
  EXPECT_EQ(refused.field("Fencing-Verdict"), "admitted");
  EXPECT_EQ(guarded_.service().lanes().closed, 0);
}

TEST_F(StreamingTest, ASuccessThatComesBeforeTheBodyWasSentProvesNothing) {
  auto client = guarded_.connect();
  client.send(head_of("Content-Length: 64000000", "early=200"));
  const std::string piece(mebibyte, 'x');
  for (int sent = 0; sent < 61; ++sent) {
    if (!client.send(piece)) break;
  }
  const auto answer = client.receive();
  EXPECT_EQ(answer.status, 502U);
  EXPECT_EQ(answer.field("Fencing-Verdict"), "unknown");
  EXPECT_EQ(guarded_.service().lanes().closed, 1);
}

TEST_F(StreamingTest, AnUpstreamThatDiesWithinTheBodyLeavesItUnknown) {
  auto client = guarded_.connect();
  client.send(head_of("Content-Length: 64000000", "die-mid-body"));
  const std::string piece(mebibyte, 'x');
  for (int sent = 0; sent < 61; ++sent) {
    if (!client.send(piece)) break;
  }
  EXPECT_EQ(client.receive().field("Fencing-Verdict"), "unknown");
  EXPECT_EQ(guarded_.service().lanes().closed, 1);
}

TEST_F(StreamingTest, ClientThatLeavesWithinTheBodyMakesTheWriteUnknown) {
  auto client = guarded_.connect();
  client.send(head_of("Content-Length: 1000000", "count"));
  client.send(std::string(200'000, 'x'));
  EXPECT_THAT(upstream_.wait_for("seen"), SizeIs(1));
  client.reset();
  EXPECT_TRUE(http::eventually([&] { return guarded_.service().lanes().closed == 1; }));
  EXPECT_THAT(upstream_.wait_for("cut"), SizeIs(1));
  EXPECT_THAT(upstream_.applied(), IsEmpty());
  EXPECT_TRUE(http::eventually([&] { return guarded_.metric("fenceguard_unknown_total") == 1; }));
}

TEST_F(StreamingTest, ABodyThatTurnsOutMalformedOnItsWayIsNeverComplete) {
  auto client = guarded_.connect();
  client.send(head_of("Transfer-Encoding: chunked", "count"));
  client.send("186a0\r\n" + std::string(100'000, 'y') + "\r\nno size\r\n");
  EXPECT_EQ(client.receive().field("Fencing-Verdict"), "unknown");
  EXPECT_THAT(upstream_.applied(), IsEmpty());
}

TEST_F(StreamingTest, AMalformedSmallBodyIsNeverForwarded) {
  auto client = guarded_.connect();
  client.send(head_of("Transfer-Encoding: chunked", "count"));
  client.send("3\r\nabc\r\nno size\r\n");
  EXPECT_EQ(client.receive().status, 400U);
  EXPECT_THAT(upstream_.seen(), IsEmpty());
  EXPECT_EQ(guarded_.put("/big", 1).status, 201U);
}

TEST_F(StreamingTest, AClientThatGoesAfterItsBodyDoesNotMakeItsWriteKnown) {
  // Nor unknown: the answer is still awaited, and the next token lets it go first.
  guarded_.put("/a", 1);
  {
    auto client = guarded_.connect();
    client.send(bytes_of("PUT", "/a", claim(2, {{"Upstream-Do", "hold=300ms"}}), "old"));
    EXPECT_THAT(upstream_.wait_for("seen", 2), SizeIs(2));
    client.reset();
  }
  EXPECT_EQ(guarded_.put("/a", 3, "", "new").status, 204U);
  const auto applied = upstream_.applied();
  ASSERT_THAT(applied, SizeIs(3));
  EXPECT_EQ(applied[1].body, "old");
  EXPECT_EQ(applied[2].body, "new");
}

TEST_F(StreamingTest, AClientThatGoesWhileItWaitsIsWithdrawnAndNothingIsForwarded) {
  guarded_.put("/a", 1);
  auto older = std::async(std::launch::async, [&] { return guarded_.put("/a", 2, "await=2"); });
  EXPECT_THAT(upstream_.wait_for("seen", 2), SizeIs(2));
  auto client = guarded_.connect();
  client.send(bytes_of("PUT", "/a", claim(3), "withdrawn"));
  ASSERT_TRUE(http::eventually([&] { return guarded_.service().lanes().waiting == 1; }));
  client.reset();
  EXPECT_TRUE(http::eventually([&] { return guarded_.service().lanes().waiting == 0; }));
  EXPECT_EQ(guarded_.put("/b", 1).status, 201U);  // for which the older write has waited
  EXPECT_EQ(older.get().status, 204U);
  EXPECT_THAT(upstream_.seen(), SizeIs(3));
}

TEST_F(StreamingTest, ASlowBodyHoldsNoLane) {
  guarded_.put("/a", 1);
  auto slow = guarded_.connect();
  slow.send(
      "PUT /a HTTP/1.1\r\nHost: guard\r\nFencing-Token: 2\r\nFencing-Holder: h\r\nContent-Length: "
      "10\r\n\r\nhal");
  EXPECT_EQ(guarded_.put("/a", 3).status, 204U);
  slow.send("f a body");
  EXPECT_EQ(slow.receive().status, 412U);
}

TEST_F(StreamingTest, ADrainWaitsForAWriteAndACutMakesItUnknown) {
  auto client = guarded_.connect();
  client.send(bytes_of("PUT", "/a", claim(1, {{"Upstream-Do", "hold=200ms"}}), "x"));
  EXPECT_THAT(upstream_.wait_for("seen"), SizeIs(1));
  EXPECT_TRUE(guarded_.service().drain(http::patience));
  EXPECT_EQ(client.receive().status, 201U);
  GuardedOptions options;
  options.lane.upstream_timeout = 2 * http::patience;
  Guarded other{upstream_.url(), options};
  auto cut = other.connect();
  cut.send(bytes_of("PUT", "/b", claim(1, {{"Upstream-Do", "never"}}), "x"));
  EXPECT_THAT(upstream_.wait_for("seen", 2), SizeIs(2));
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_FALSE(other.service().drain(100ms));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, http::patience);
  EXPECT_EQ(other.service().lanes().closed, 1);
}

}  // namespace
}  // namespace fenceguard::test
