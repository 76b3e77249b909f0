// What two readers of one connection could understand differently, through the whole proxy: its upstream sees
// nothing of it, or exactly the one request that was meant, and nobody else is given its answer.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <thread>

#include "server/proxy/upstream/upstream_pool.hpp"
#include "tests/http/edge_cases.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string smuggled = "PUT /smuggled HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxx";

class ProxyEdge : public testing::Test {
 protected:
  ProxyEdge() {
    guarded_.put("/edge/mine", 1, "", "mine");
    (void)take_seen();
  }
  ~ProxyEdge() override { EXPECT_THAT(upstream_.anomalies(), IsEmpty()); }

  static GuardedOptions options() {
    GuardedOptions options;
    options.limits.body_bytes_max = http::Limits{}.body_bytes_max;
    return options;
  }

  // What the upstream has logged since the last call: 'METHOD TARGET BODY'.
  std::vector<std::string> take_seen() {
    std::vector<std::string> seen;
    const auto events = upstream_.events("whole");
    for (; taken_ < events.size(); ++taken_) {
      const auto& event = events[taken_];
      seen.push_back(event.method + " " + event.path + " " + event.body);
    }
    EXPECT_EQ(upstream_.seen().size(), events.size()) << "a request was not read to its end";
    return seen;
  }

  // Shows that the connection to the upstream has nothing left on it. How: another client reads over it, once
  // it has rested, unless the guard asked for its end.
  void expect_others_answered() {
    std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
    const auto before = upstream_.seen();
    std::int64_t connections = 0;
    for (const auto& event : before) connections = std::max(connections, event.connection);
    EXPECT_EQ(guarded_.send("GET", "/edge/mine").body, "mine");
    EXPECT_THAT(take_seen(), ElementsAre("GET /edge/mine "));
    const bool was_last = before.back().head.find("\r\nConnection: close\r\n") != std::string::npos;
    EXPECT_TRUE(was_last || upstream_.seen().back().connection <= connections);
  }

  Upstream upstream_{std::string{"status=200 "} + keeps_connections};
  Guarded guarded_{upstream_.url(), options()};

 private:
  std::size_t taken_ = 0;
};

// The same bytes count times.
std::string repeated(const std::string& bytes, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += bytes;
  return all;
}

class LargeBodyEdgeTest : public ProxyEdge {
 protected:
  // Sends a PUT whose body, as it is sent, holds whole requests; the upstream must see that one alone.
  void expect_one(const std::string& framing, const std::string& sent, const std::string& body) {
    auto client = guarded_.connect();
    client.send("PUT /edge/case HTTP/1.1\r\nHost: h\r\nFencing-Token: 7\r\nFencing-Holder: edge\r\n" +
                framing + "\r\n\r\n" + sent);
    EXPECT_EQ(client.receive().status, 200U);
    boost::crc_32_type crc;
    crc.process_bytes(body.data(), body.size());
    const auto applied = upstream_.applied().back();
    EXPECT_EQ(applied.path, "/edge/case");
    EXPECT_EQ(applied.size, static_cast<std::int64_t>(body.size()));
    EXPECT_EQ(applied.crc, crc.checksum());
    EXPECT_EQ(take_seen().size(), 1U);
    expect_others_answered();
  }
};

// More than is held back before it is passed on.
constexpr int large_count = 5'000;

TEST_F(LargeBodyEdgeTest, RequestsInABodyOfKnownLengthAreItsBytes) {
  const auto body = repeated(smuggled, large_count);
  expect_one("Content-Length: " + std::to_string(body.size()), body, body);
}

TEST_F(LargeBodyEdgeTest, RequestsThatFillAChunkEachAreItsBytes) {
  const auto chunk = fmt::format("{:x}\r\n{}\r\n", smuggled.size(), smuggled);
  expect_one("Transfer-Encoding: chunked", repeated(chunk, large_count) + "0\r\n\r\n",
             repeated(smuggled, large_count));
}

// Shows that a body which turns out malformed on its way takes no effect. How: what is behind the fault is a
// whole request, which a server that read on would take for one.
TEST_F(LargeBodyEdgeTest, WhatFollowsAMalformedChunkIsNeverSeen) {
  const auto chunk = fmt::format("{:x}\r\n{}\r\n", smuggled.size(), smuggled);
  auto client = guarded_.connect();
  client.send(
      "PUT /edge/case HTTP/1.1\r\nHost: h\r\nFencing-Token: 7\r\nFencing-Holder: edge\r\n"
      "Transfer-Encoding: chunked\r\n\r\n" +
      repeated(chunk, large_count) + "0x0\r\n\r\n" + smuggled);
  EXPECT_EQ(client.receive().field("Fencing-Verdict"), "unknown");
  EXPECT_EQ(client.receive_to_end(), "");
  (void)upstream_.wait_for("cut");
  EXPECT_EQ(guarded_.send("GET", "/edge/mine").body, "mine");
  const auto seen = upstream_.seen();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[1].path, "/edge/case");
  EXPECT_NE(seen[2].connection, seen[1].connection);
}

class ProxyEdgeTest : public ProxyEdge, public testing::WithParamInterface<http::EdgeClass> {};

TEST_P(ProxyEdgeTest, TheUpstreamIsNotFooled) {
  for (const auto& edge_case : GetParam().cases) {
    http::expect_edge(edge_case, guarded_.address(), [this] { return take_seen(); });
    expect_others_answered();
  }
}

INSTANTIATE_TEST_SUITE_P(Corpora, ProxyEdgeTest, testing::ValuesIn(http::edge_classes()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace fenceguard::test
