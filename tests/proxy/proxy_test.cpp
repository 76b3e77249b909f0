// The proxy in front of an upstream that knows nothing of tokens: what is judged, what is passed on, what is
// answered.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "server/proxy/upstream/upstream_pool.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class ProxyTest : public testing::Test {
 protected:
  ~ProxyTest() override { EXPECT_THAT(upstream_.anomalies(), IsEmpty()); }
  Upstream upstream_{keeps_connections};
  Guarded guarded_{upstream_.url()};
};

TEST_F(ProxyTest, AnAdmittedWriteIsAnsweredAsTheStorageDoesAndSaysSo) {
  const auto response = guarded_.put("/a/b", 34, "", "hello");
  EXPECT_EQ(response.status, 201U);
  EXPECT_EQ(verdict(response), "admitted");
  EXPECT_EQ(field(response, "Fencing-Highest"), "34");
  const auto applied = upstream_.applied();
  ASSERT_THAT(applied, SizeIs(1));
  EXPECT_EQ(applied[0].path, "/a/b");
  EXPECT_EQ(applied[0].body, "hello");
  EXPECT_EQ(applied[0].token, std::nullopt);
  EXPECT_EQ(guarded_.metric("fenceguard_verdicts_total{storage=\"http\",verdict=\"admitted\"}"), 1);
  EXPECT_EQ(guarded_.metric("fenceguard_upstream_duration_seconds_count"), 1);
}

TEST_F(ProxyTest, RefusedClaimsForwardNothing) {
  EXPECT_EQ(guarded_.put("/a", 34).status, 201U);
  const auto stale = guarded_.put("/a", 33);
  EXPECT_EQ(stale.status, 412U);
  EXPECT_EQ(verdict(stale), "stale");
  EXPECT_EQ(field(stale, "Fencing-Highest"), "34");
  const auto conflict =
      guarded_.send("PUT", "/a", {{"Fencing-Token", "34"}, {"Fencing-Holder", "other"}}, "x");
  EXPECT_EQ(conflict.status, 409U);
  EXPECT_THAT(conflict.body, Not(HasSubstr("\"h\"")));
  EXPECT_EQ(guarded_.send("PUT", "/a", {}, "x").status, 428U);
  EXPECT_EQ(guarded_.send("DELETE", "/a").status, 428U);
  EXPECT_EQ(guarded_.send("TRACE", "/a", claim(40)).status, 405U);
  EXPECT_THAT(upstream_.seen(), SizeIs(1));
  EXPECT_EQ(guarded_.metric("fenceguard_verdicts_total{storage=\"http\",verdict=\"stale\"}"), 1);
  EXPECT_EQ(guarded_.metric("fenceguard_verdicts_total{storage=\"http\",verdict=\"missing\"}"), 2);
}

// Shows that a web page whose own name leads to the guard raises no fence and reads nothing. How: the
// requests that a browser would send for it.
TEST_F(ProxyTest, ARequestUnderAForeignHostIsRefusedBeforeItIsJudged) {
  HostCheck hosts{HostCheck::Side::data, {"guard.example"}};
  hosts.set_address("127.0.0.1:0");
  GuardedOptions options;
  options.hosts = &hosts;
  const Guarded named{upstream_.url(), options};
  const auto page = claim(99, {{"Host", "evil.example"}});
  EXPECT_EQ(named.send("PUT", "/a", page, "x").status, 403U);
  EXPECT_EQ(named.send("GET", "/a", page).status, 403U);
  EXPECT_THAT(upstream_.seen(), IsEmpty());
  EXPECT_EQ(named.send("PUT", "/a", claim(5, {{"Host", "guard.example:443"}}), "x").status, 201U);
}

TEST_F(ProxyTest, SequenceOfAWriteIsADuplicateAndOfARefusalIsFree) {
  const auto put = [&](const std::string& words) {
    return guarded_.send("PUT", "/a", claim(1, {{"Fencing-Sequence", "7"}, {"Upstream-Do", words}}), "x");
  };
  EXPECT_EQ(put("status=409").status, 409U);
  EXPECT_EQ(put("").status, 204U);
  const auto duplicate = put("");
  EXPECT_EQ(duplicate.status, 200U);
  EXPECT_EQ(verdict(duplicate), "duplicate");
  EXPECT_EQ(field(duplicate, "Fencing-Highest"), "1");
  EXPECT_THAT(upstream_.seen(), SizeIs(2));
}

TEST_F(ProxyTest, AFencedReadAdvancesAndIsNotStored) {
  guarded_.put("/a", 34, "", "hello");
  const auto read =
      guarded_.send("GET", "/a", claim(35, {{"Upstream-Do", "field=Cache-Control:max-age=600"}}));
  EXPECT_EQ(read.status, 200U);
  EXPECT_EQ(read.body, "hello");
  EXPECT_EQ(verdict(read), "admitted");
  EXPECT_EQ(field(read, "Fencing-Highest"), "35");
  EXPECT_EQ(field(read, "Cache-Control"), "no-store");
  EXPECT_EQ(guarded_.put("/a", 34).status, 412U);
  EXPECT_EQ(guarded_.send("GET", "/a", claim(34)).status, 412U);
}

TEST_F(ProxyTest, APlainReadIsPassedThroughAndVariesByTheToken) {
  guarded_.put("/a", 34, "", "hello");
  const auto read = guarded_.send("GET", "/a", {{"Upstream-Do", "field=Cache-Control:max-age=600"}});
  EXPECT_EQ(read.body, "hello");
  EXPECT_EQ(verdict(read), "");
  EXPECT_EQ(field(read, "Cache-Control"), "max-age=600");
  EXPECT_EQ(field(read, "Vary"), "Fencing-Token");
  EXPECT_EQ(guarded_.send("GET", "/none").status, 404U);
  EXPECT_EQ(guarded_.send("GET", "/a", {{"Upstream-Do", "status=503"}}).status, 503U);
}

TEST_F(ProxyTest, ClaimsOfTheUpstreamsOwnNeverReachAClient) {
  for (const auto* name : {"Fencing-Verdict", "fencing-highest", "Fencing-Token"}) {
    const auto words = "field=" + std::string{name} + ":admitted-99";
    const auto plain = guarded_.send("GET", "/a", {{"Upstream-Do", words}});
    for (const auto& [key, value] : plain.fields) EXPECT_THAT(value, Not(HasSubstr("admitted-99"))) << key;
    const auto write = guarded_.put("/a", 1, words);
    EXPECT_EQ(verdict(write), "admitted");
  }
}

TEST_F(ProxyTest, WhereTheStorageIsIsNotTold) {
  const auto own = upstream_.url();
  for (const auto* name : {"Location", "content-location"}) {
    const auto words = [&](const std::string& value) { return "field=" + std::string{name} + ":" + value; };
    EXPECT_EQ(field(guarded_.put("/a", 1, words(own + "/a/b?c")), name), "/a/b?c");
    EXPECT_EQ(field(guarded_.send("GET", "/a", {{"Upstream-Do", words(own + "/a")}}), name), "/a");
    EXPECT_EQ(field(guarded_.put("/a", 1, words("http://elsewhere/a")), name), "http://elsewhere/a");
  }
}

TEST_F(ProxyTest, RangesConditionsAndHeadWorkAsTheStorageDoesThem) {
  guarded_.put("/a", 1, "", "0123456789");
  const auto part = guarded_.send("GET", "/a", {{"Range", "bytes=2-4"}});
  EXPECT_EQ(part.status, 206U);
  EXPECT_EQ(part.body, "234");
  EXPECT_EQ(field(part, "Content-Range"), "bytes 2-4/10");
  auto client = guarded_.connect();
  for (const auto* words : {"", "chunked"}) {
    client.send(bytes_of("HEAD", "/a", {{"Upstream-Do", words}}));
    const auto head = client.receive(true);
    EXPECT_EQ(head.status, 200U);
    EXPECT_EQ(head.field("Content-Length"), *words == '\0' ? std::optional<std::string>{"10"} : std::nullopt);
  }
  client.send(bytes_of("GET", "/a", {}));
  EXPECT_EQ(client.receive().body, "0123456789");
}

TEST_F(ProxyTest, RequestsToTheUpstreamShareItsConnections) {
  auto client = guarded_.connect();
  for (int round = 0; round < 5; ++round) {
    client.send(bytes_of("PUT", "/a", claim(1), "x"));
    EXPECT_EQ(client.receive().status, round == 0 ? 201U : 204U);
    std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
  }
  for (const auto& event : upstream_.seen()) EXPECT_EQ(event.connection, upstream_.seen()[0].connection);
}

TEST_F(ProxyTest, ConnectionsThatABurstLeftAreNotKeptBusy) {
  std::vector<std::future<http::Response>> burst;
  for (int i = 0; i < 8; ++i)
    burst.push_back(std::async([this] {
      return guarded_.send("GET", "/a", {{"Upstream-Do", "hold=100ms"}});
    }));
  for (auto& answer : burst) answer.get();
  const auto before = upstream_.seen().size();
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
    guarded_.send("GET", "/a");
  }
  const auto seen = upstream_.seen();
  for (auto i = before; i < seen.size(); ++i) EXPECT_EQ(seen[i].connection, seen[before].connection);
}

TEST_F(ProxyTest, ABodyInChunksIsPassedOnWithItsLength) {
  auto client = guarded_.connect();
  client.send(bytes_of("PUT", "/a", claim(1, {{"Transfer-Encoding", "chunked"}})) +
              "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer-Field: t\r\n\r\n");
  EXPECT_EQ(client.receive().status, 201U);
  EXPECT_EQ(upstream_.applied()[0].body, "abcde");
  const auto head = upstream_.seen()[0].head;
  EXPECT_THAT(head, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Trailer-Field")));
}

TEST_F(ProxyTest, AnExpectationIsMetHereAndNotPassedOn) {
  auto client = guarded_.connect();
  client.send(
      "PUT /a HTTP/1.1\r\nHost: guard\r\nFencing-Token: 1\r\nFencing-Holder: h\r\nContent-Length: 5\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive(true).status, 100U);
  client.send("hello");
  EXPECT_EQ(client.receive().status, 201U);
  EXPECT_THAT(upstream_.seen()[0].head, Not(HasSubstr("Expect")));
}

TEST_F(ProxyTest, AnUnreachableUpstreamHasWrittenNothingAndClosesNothing) {
  upstream_.process().stop();
  const auto write = guarded_.put("/a", 5);
  EXPECT_EQ(write.status, 503U);
  EXPECT_EQ(verdict(write), "unavailable");
  EXPECT_NE(field(write, "Retry-After"), "");
  EXPECT_EQ(guarded_.send("GET", "/a").status, 503U);
  EXPECT_EQ(guarded_.service().lanes().closed, 0);
  upstream_.start();
  EXPECT_EQ(guarded_.put("/a", 5).status, 201U);
}

TEST_F(ProxyTest, ClaimsArePassedOnWhereThatIsAskedFor) {
  GuardedOptions options;
  options.lane.forward_claim = true;
  const Guarded forwarding{upstream_.url() + "/base/", options};
  EXPECT_EQ(forwarding.put("/a", 7).status, 201U);
  EXPECT_EQ(upstream_.applied()[0].token, "7");
  EXPECT_EQ(upstream_.applied()[0].path, "/base/a");
}

TEST_F(ProxyTest, WithADepthOneTokenCoversWhatIsBelowAndNothingIsAbove) {
  GuardedOptions options;
  options.resource_depth = 2;
  const Guarded deep{upstream_.url(), options};
  EXPECT_EQ(deep.put("/a/b/c", 5).status, 201U);
  EXPECT_EQ(deep.put("/a/b/d", 4).status, 412U);
  EXPECT_EQ(deep.put("/a", 9).status, 400U);
  EXPECT_EQ(deep.send("GET", "/a").status, 400U);
  EXPECT_EQ(deep.send("MOVE", "/a/b/c", claim(5, {{"Destination", "/a/b/e"}})).status / 100, 2U);
  EXPECT_EQ(deep.send("MOVE", "/a/b/e", claim(5, {{"Destination", "/a/c/e"}})).status, 428U);
}

TEST_F(ProxyTest, AMoveIsLetInByBothClaimsOrNotAtAll) {
  guarded_.put("/a", 5);
  guarded_.put("/b", 9);
  const auto move = [&](std::int64_t own, std::int64_t other) {
    return guarded_.send("MOVE", "/a",
                         claim(own, {{"Destination", "http://" + guarded_.address() + "/b"},
                                     {"Fencing-Destination-Token", std::to_string(other)},
                                     {"Fencing-Destination-Holder", "h"}}));
  };
  EXPECT_EQ(move(6, 8).status, 412U);
  EXPECT_EQ(guarded_.put("/a", 5).status, 204U) << "a refused pair raises no fence";
  EXPECT_EQ(move(4, 10).status, 412U);
  EXPECT_EQ(guarded_.put("/b", 9).status, 204U);
  EXPECT_EQ(guarded_.send("DELETE", "/b", claim(9)).status, 204U);
  const auto moved = move(6, 10);
  EXPECT_EQ(moved.status, 201U);
  EXPECT_EQ(field(moved, "Fencing-Highest"), "6");
  EXPECT_EQ(upstream_.applied().back().destination, upstream_.url() + "/b");
  EXPECT_EQ(guarded_.put("/b", 9).status, 412U);
}

TEST_F(ProxyTest, PipelinedRequestsAreAnsweredInTurn) {
  auto client = guarded_.connect();
  client.send(bytes_of("PUT", "/a", claim(1), "one") + bytes_of("GET", "/a", {}) +
              bytes_of("PUT", "/a", claim(0)));
  EXPECT_EQ(client.receive().status, 201U);
  EXPECT_EQ(client.receive().body, "one");
  EXPECT_EQ(client.receive().status, 400U);
}

}  // namespace
}  // namespace fenceguard::test
