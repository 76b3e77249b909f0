#include "tests/proxy/upstream/upstream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/http/support.hpp"

namespace fenceguard::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string request(const std::string& method, const std::string& words, const std::string& body = {},
                    const std::string& fields = {}) {
  return method + " /object HTTP/1.1\r\nHost: here\r\nUpstream-Do: " + words + "\r\n" + fields +
         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
}

class UpstreamTest : public ::testing::Test {
 protected:
  http::RawClient connect() { return http::RawClient{upstream.address()}; }

  // All that comes back until the upstream closes.
  std::string put(const std::string& words) {
    auto client = connect();
    client.send(request("PUT", words, "data"));
    auto answer = client.receive_to_end();
    was_reset = client.was_reset();
    return answer;
  }

  Upstream upstream;
  bool was_reset = false;
};

TEST_F(UpstreamTest, KeepsWhatItIsGivenAndLogsItInOrder) {
  auto client = connect();
  client.send(request("PUT", "", "hello", "Fencing-Token: 7\r\n"));
  EXPECT_EQ(client.receive().status, 201);
  client.send(
      "PUT /object HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: "
      "chunked\r\n\r\n2\r\nhe\r\n3\r\ny!\xe4\r\n0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 204);
  client.send(request("GET", "", {}, "Range: bytes=1-2\r\n"));
  const auto answer = client.receive();
  EXPECT_EQ(answer.status, 206);
  EXPECT_EQ(answer.body, "ey");
  const auto applied = upstream.applied();
  ASSERT_THAT(applied, SizeIs(2));
  EXPECT_EQ(applied[0].token, "7");
  EXPECT_EQ(applied[1].token, std::nullopt);
  EXPECT_EQ(applied[1].body, "hey!\xe4");
  EXPECT_EQ(applied[1].size, 5);
  ASSERT_THAT(upstream.seen(), SizeIs(3));
  EXPECT_THAT(upstream.seen()[0].head, StartsWith("PUT /object HTTP/1.1\r\nHost: here\r\n"));
}

TEST_F(UpstreamTest, MovesAndCopiesAndListsAndDeletes) {
  auto client = connect();
  const auto status_of = [&](const std::string& method, const std::string& fields = {}) {
    client.send(request(method, "", method == "PUT" ? "x" : "", fields));
    return client.receive().status;
  };
  EXPECT_EQ(status_of("PUT"), 201);
  EXPECT_EQ(status_of("COPY", "Destination: http://here/second\r\n"), 201);
  EXPECT_EQ(status_of("MOVE", "Destination: /second\r\nOverwrite: F\r\n"), 412);
  EXPECT_EQ(status_of("MOVE", "Destination: /second\r\n"), 204);
  EXPECT_EQ(status_of("PROPFIND"), 404);
  EXPECT_EQ(status_of("DELETE"), 404);
  EXPECT_EQ(status_of("MKCOL"), 201);
  EXPECT_EQ(status_of("PROPFIND"), 207);
  EXPECT_EQ(status_of("BREW"), 501);
  EXPECT_THAT(upstream.events("refused"), SizeIs(3));
}

TEST_F(UpstreamTest, ACountedBodyIsNotKept) {
  auto client = connect();
  client.send(request("PUT", "count", std::string(1'000'000, 'a')));
  EXPECT_EQ(client.receive().status, 201);
  EXPECT_EQ(upstream.applied().at(0).size, 1'000'000);
  client.send(request("GET", ""));
  std::string pattern;
  for (int n = 0; n < 1'000'000; ++n) pattern += static_cast<char>(n % 251);
  EXPECT_EQ(client.receive().body, pattern);
}

TEST_F(UpstreamTest, AppliesWhatItHeldAlsoAfterTheClientIsGone) {
  {
    auto client = connect();
    client.send(request("PUT", "hold=300ms await=1", "late"));
    EXPECT_THAT(upstream.wait_for("seen"), SizeIs(1));
    client.reset();
  }
  EXPECT_THAT(upstream.applied(), IsEmpty());
  EXPECT_THAT(put("close"), StartsWith("HTTP/1.1 201"));
  EXPECT_EQ(upstream.wait_for("applied", 2).at(1).body, "late");
}

TEST_F(UpstreamTest, ClosesOrResetsWithoutApplying) {
  EXPECT_EQ(put("drop"), "");
  EXPECT_FALSE(was_reset);
  EXPECT_EQ(put("reset"), "");
  EXPECT_TRUE(was_reset);
  EXPECT_EQ(put("die-mid-body"), "");
  EXPECT_TRUE(was_reset);
  EXPECT_THAT(put("unapplied close"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(upstream.events("seen"), SizeIs(4));
  EXPECT_THAT(upstream.applied(), IsEmpty());
}

TEST_F(UpstreamTest, AppliesAndThenAnswersBadly) {
  EXPECT_EQ(put("apply-reset"), "");
  EXPECT_TRUE(was_reset);
  EXPECT_THAT(put("status=202 close"), StartsWith("HTTP/1.1 202 "));
  EXPECT_THAT(put("garbage"), HasSubstr("no HTTP"));
  EXPECT_EQ(put("half-head").find("\r\n\r\n"), std::string::npos);
  EXPECT_THAT(put("both-framings status=200 close"), HasSubstr("Content-Length: 0\r\nTransfer-Encoding"));
  EXPECT_THAT(put("http10"), StartsWith("HTTP/1.0 204"));
  const auto twice = put("twice hang-up");
  EXPECT_NE(twice.find("HTTP/1.1"), twice.rfind("HTTP/1.1"));
  EXPECT_THAT(put("more close"), HasSubstr("\r\n\r\nHTTP/1.1 200 OK"));
  EXPECT_THAT(put("interim=103 close"), StartsWith("HTTP/1.1 103 "));
  EXPECT_THAT(put("slow=1ms field=Retry-After:9 close"), HasSubstr("Retry-After: 9\r\n"));
  EXPECT_THAT(upstream.applied(), SizeIs(10));
}

TEST_F(UpstreamTest, SendsBodiesInEveryWay) {
  EXPECT_THAT(put("status=200 body=3 close chunked"),
              ::testing::EndsWith(std::string("3\r\n\0\1\2\r\n0\r\n\r\n", 13)));
  EXPECT_THAT(put("status=200 body=3 until-close"),
              ::testing::EndsWith(std::string("close\r\n\r\n\0\1\2", 12)));
  EXPECT_THAT(put("status=200 body=4 half"), HasSubstr(std::string("Content-Length: 4\r\n\r\n\0\1", 23)));
}

TEST_F(UpstreamTest, AnswersBeforeTheBodyIsThere) {
  auto client = connect();
  client.send("PUT /object HTTP/1.1\r\nHost: here\r\nUpstream-Do: early=413\r\nContent-Length: 4\r\n\r\nda");
  EXPECT_EQ(client.receive().status, 413);
  client.send("ta");
  client.send(request("GET", ""));
  EXPECT_EQ(client.receive().status, 404);
}

TEST_F(UpstreamTest, NeverAnswersWhileTheClientStays) {
  auto client = connect();
  client.send(request("PUT", "never", "data"));
  EXPECT_THAT(upstream.wait_for("applied"), SizeIs(1));
  EXPECT_TRUE(client.is_quiet());
}

TEST_F(UpstreamTest, LogsWhatNoCarefulProxySends) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::vector<std::string> odd{
      "GET /\r\n\r\n",
      "GET / HTTP/1.1\nHost: a\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
      post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
      post + "Content-Length: +1\r\n\r\na",
      post + "Content-Length : 1\r\n\r\na",
      post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
      post + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
      post + " folded\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
  };
  for (std::size_t i = 0; i < odd.size(); ++i) {
    auto client = connect();
    client.send(odd[i]);
    EXPECT_THAT(client.receive_to_end(), StartsWith("HTTP/1.1 400")) << odd[i];
    EXPECT_THAT(upstream.anomalies(), SizeIs(i + 1)) << odd[i];
  }
}

TEST_F(UpstreamTest, LogsATruncatedRequest) {
  {
    auto client = connect();
    client.send("PUT /object HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nda");
    EXPECT_THAT(upstream.wait_for("seen"), SizeIs(1));
  }
  EXPECT_THAT(upstream.wait_for("cut"), SizeIs(1));
  EXPECT_THAT(upstream.applied(), IsEmpty());
}

TEST_F(UpstreamTest, ComesBackOnTheSamePortWithTheSameLog) {
  const int port = upstream.port();
  static_cast<void>(put("close"));
  upstream.process().kill();
  upstream.start();
  EXPECT_EQ(upstream.port(), port);
  EXPECT_THAT(put("close"), StartsWith("HTTP/1.1 201"));
  EXPECT_THAT(upstream.applied(), SizeIs(2));
}

TEST(UpstreamDefaultTest, StandsForRequestsThatSayNothing) {
  const Upstream upstream{"status=503 close"};
  http::RawClient client{upstream.address()};
  client.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_THAT(client.receive_to_end(), StartsWith("HTTP/1.1 503"));
}

TEST(FallenTest, TellsALowerTokenAfterAHigherOneOnTheSamePath) {
  const auto event = [](const std::string& path, const std::string& token) {
    UpstreamEvent applied;
    applied.path = path;
    applied.token = token;
    return applied;
  };
  EXPECT_THAT(fallen({event("/a", "2"), event("/b", "1"), event("/a", "2"), event("/a", "3")}), IsEmpty());
  EXPECT_THAT(fallen({event("/a", "2"), event("/a", "1"), event("/a", "2")}), ElementsAre("/a: 1 after 2"));
}

}  // namespace
}  // namespace fenceguard::test
