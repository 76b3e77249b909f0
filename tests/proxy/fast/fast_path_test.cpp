// The fast path speaks the same protocol as the coroutines that it stands in for. How: one guard with it and
// one without are sent the same bytes, each in front of an upstream of its own; what the upstreams saw and
// what the clients got must be the same.

#include <fmt/format.h>

#include <iostream>

#include "tests/proxy/fast/fast_path_case.hpp"

namespace fenceguard::test {
namespace {

TEST_F(FastPathTest, APlainRequestIsServedByItAndAnyOtherIsNot) {
  const auto path = next_path();
  EXPECT_TRUE(expect_same(script_of(request("PUT", path, "")), path));
  EXPECT_EQ(served_fast(), 1U);
  const std::string more = "\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
  auto other = request("GET", next_path(), "status=200 body=10");
  EXPECT_TRUE(expect_same(script_of(other.substr(0, other.size() - 4) + more), next_path()));
  EXPECT_EQ(served_fast(), 1U);
}

// It raises its fence, which takes a commit and so a coroutine; what was read and composed goes with it.
TEST_F(FastPathTest, FirstWriteOfAHolderIsParsedOnce) {
  auto& service = fast_.guarded().service();
  const auto path = next_path();
  const auto before = service.parsed();
  auto client = fast_.guarded().connect();
  for (const auto next : {token, token + 1}) {
    ASSERT_TRUE(client.send(bytes_of("PUT", path, claim(next), "first") +
                            bytes_of("PUT", path, claim(next), "second")));
    EXPECT_LT(client.receive().status, 300U);
    EXPECT_EQ(client.receive().status, 204U);
  }
  EXPECT_EQ(service.parsed() - before, 4U);
  std::vector<std::string> bodies;
  for (const auto& event : fast_.upstream().applied()) bodies.push_back(event.body);
  EXPECT_THAT(bodies, testing::ElementsAre("first", "second", "first", "second"));
}

// Neither is what goes on as a coroutine for what came of the upstream.
TEST_F(FastPathTest, RequestThatIsGivenBackLaterIsParsedOnce) {
  auto& service = fast_.guarded().service();
  for (const auto* words : {"drop", "half", "hold=20ms", "status=200 body=70000"}) {
    const auto before = service.parsed();
    const auto path = next_path();
    EXPECT_TRUE(expect_same(script_of(request("PUT", path, words)), path)) << words;
    EXPECT_EQ(service.parsed() - before, 2U) << words << ": one before it, which prepares";
  }
}

TEST_F(FastPathTest, ATraceIsPassedOnAsItCameOnBothWays) {
  const std::string trace =
      "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
      "tracestate: vendor=t61rcWkgMzE,other=1\r\n";
  for (const auto* method : {"PUT", "GET"}) {
    const auto path = next_path();
    auto traced = request(method, path, "");
    traced.insert(traced.find("\r\n") + 2, trace);
    EXPECT_TRUE(expect_same(script_of(traced), path));
    EXPECT_THAT(fast_.seen(), testing::Contains(testing::HasSubstr(trace))) << method;
  }
  EXPECT_EQ(served_fast(), 2U);
}

TEST_F(FastPathTest, EveryAnswerOfTheUpstreamEndsInTheSameWay) {
  for (const auto& words : upstream_words()) {
    for (const auto* method : {"PUT", "GET", "DELETE"}) {
      SCOPED_TRACE(std::string{method} + " " + words);
      const auto path = next_path();
      EXPECT_TRUE(expect_same(script_of(request(method, path, words)), path));
    }
  }
  EXPECT_GT(served_fast(), upstream_words().size()) << "what is answered whole";
}

TEST_F(FastPathTest, TheSameBytesAreTheSameRequestsAndAnswers) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random{seed};
  for (int i = 0; i < scaled(100); ++i) {
    const auto path = next_path();
    const auto script = random_script(random, path, token);
    SCOPED_TRACE(fmt::format("seed {}, script {}:\n{}", seed, i, script.bytes().substr(0, 2'000)));
    if (!expect_same(script, path)) break;
  }
  // Of the few that a sanitizer has time for, none may be plain.
  if (slowdown == 1) {
    EXPECT_GT(served_fast(), 0U);
  }
}

class SilentUpstreamTest : public FastPathTest {
 protected:
  static GuardedOptions impatient() {
    GuardedOptions options;
    options.lane.upstream_timeout = slowdown == 1 ? 2s : 6s;
    return options;
  }
  SilentUpstreamTest() : FastPathTest{impatient()} {}
};

TEST_F(SilentUpstreamTest, AnAnswerThatDoesNotComeIsLateOnBothWays) {
  for (const auto* method : {"PUT", "GET"}) {
    // The second begins, and then nothing comes.
    for (const auto* words : {"never", "status=200 body=10 slow=60s"}) {
      const auto path = next_path();
      EXPECT_TRUE(expect_same(script_of(request(method, path, words)), path));
    }
  }
}

}  // namespace
}  // namespace fenceguard::test
