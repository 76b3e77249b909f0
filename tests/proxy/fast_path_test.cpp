// The fast path speaks the same protocol as the coroutines that it stands in for. How: one guard with it and
// one without are sent the same bytes, each in front of an upstream of its own; what the upstreams saw and
// what the clients got must be the same.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <regex>
#include <thread>

#include "server/proxy/upstream/upstream_pool.hpp"
#include "tests/proxy/fast_path_script.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/upstream/upstream.hpp"

namespace fenceguard::test {
namespace {

using testing::IsEmpty;

constexpr int token = 5;

std::string without(const std::string& text, const char* pattern, const char* instead) {
  return std::regex_replace(text, std::regex{pattern}, instead);
}

// One of the two guards, its upstream, and what has come of it.
class Side {
 public:
  Side(bool has_fast_path, GuardedOptions options)
      : guarded_{upstream_.url(), with(options, has_fast_path)} {}

  [[nodiscard]] Guarded& guarded() noexcept { return guarded_; }
  [[nodiscard]] Upstream& upstream() noexcept { return upstream_; }

  // The fence of path stands at token, and a connection to the upstream has rested.
  void prepare(const std::string& path) {
    ASSERT_EQ(guarded_.put(path, token).status, 201U);
    std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
    seen_before_ = upstream_.events().size();
  }

  // What the client got, an answer each, but for dates and times.
  std::vector<std::string> play(const FastPathScript& script) {
    auto client = guarded_.connect();
    const auto bytes = script.bytes();
    std::size_t sent = 0;
    for (const auto cut : script.cuts) {
      if (!client.send(std::string_view{bytes}.substr(sent, cut - sent))) break;
      sent = cut;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    (void)client.send(std::string_view{bytes}.substr(sent));
    std::vector<std::string> answers;
    for (const bool is_head : script.are_heads) {
      try {
        const auto answer = client.receive(is_head);
        auto head = without(answer.head, "Date: [^\r]*\r\n", "");
        answers.push_back(without(head, "Retry-After: [0-9]+", "Retry-After: N") + answer.body);
      } catch (const std::exception&) {
        answers.emplace_back("the end");
        break;
      }
    }
    return answers;
  }

  // What the upstream has logged since it was prepared, but for ports.
  std::vector<std::string> seen() {
    std::vector<std::string> lines;
    const auto events = upstream_.events();
    for (auto i = seen_before_; i < events.size(); ++i) {
      const auto& event = events[i];
      if (event.kind == "answered" || event.kind == "cut") continue;
      auto head = without(event.head, "\r\nHost: 127.0.0.1:[0-9]+\r\n", "\r\nHost: upstream\r\n");
      lines.push_back(fmt::format("{} {} {} {} {} {}", event.kind, event.method, event.path, event.size,
                                  event.crc, head));
    }
    return lines;
  }

 private:
  static GuardedOptions with(GuardedOptions options, bool has_fast_path) {
    options.has_fast_path = has_fast_path;
    return options;
  }

  Upstream upstream_{keeps_connections};
  Guarded guarded_;
  std::size_t seen_before_ = 0;
};

class FastPathTest : public testing::Test {
 protected:
  explicit FastPathTest(const GuardedOptions& options = {}) : fast_{true, options}, slow_{false, options} {}
  ~FastPathTest() override {
    EXPECT_EQ(slow_.guarded().service().served_fast(), 0U);
    EXPECT_THAT(fast_.upstream().anomalies(), IsEmpty());
  }

  // A path that no other script has used.
  std::string next_path() { return fmt::format("/fast/{}", ++paths_); }

  // False: something differs.
  bool expect_same(const FastPathScript& script, const std::string& path) {
    fast_.prepare(path);
    slow_.prepare(path);
    const auto by_fast = fast_.play(script);
    const auto by_slow = slow_.play(script);
    EXPECT_EQ(by_fast, by_slow);
    // The upstream may log after its client has been answered.
    const bool saw_the_same = http::eventually([&] { return fast_.seen() == slow_.seen(); });
    EXPECT_TRUE(saw_the_same) << testing::PrintToString(fast_.seen()) << "\nby coroutines\n"
                              << testing::PrintToString(slow_.seen());
    const auto lanes = fast_.guarded().service().lanes();
    const auto expected = slow_.guarded().service().lanes();
    EXPECT_EQ(lanes.settle_closures, expected.settle_closures);
    EXPECT_EQ(lanes.in_flight, 0);
    return by_fast == by_slow && saw_the_same && lanes.settle_closures == expected.settle_closures;
  }

  static FastPathScript script_of(const std::string& request) { return {{request}, {false}, {}}; }
  static std::string request(const std::string& method, const std::string& path, const std::string& words) {
    auto fields = claim(token);
    if (!words.empty()) fields.emplace_back("Upstream-Do", words);
    return bytes_of(method, path, fields, method == "PUT" ? "body" : "");
  }

  [[nodiscard]] std::uint64_t served_fast() { return fast_.guarded().service().served_fast(); }

  Side fast_;
  Side slow_;

 private:
  int paths_ = 0;
};

TEST_F(FastPathTest, APlainRequestIsServedByItAndAnyOtherIsNot) {
  const auto path = next_path();
  EXPECT_TRUE(expect_same(script_of(request("PUT", path, "")), path));
  EXPECT_EQ(served_fast(), 1U);
  const std::string more = "\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
  auto other = request("GET", next_path(), "status=200 body=10");
  EXPECT_TRUE(expect_same(script_of(other.substr(0, other.size() - 4) + more), next_path()));
  EXPECT_EQ(served_fast(), 1U);
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
  if (slowdown == 1) EXPECT_GT(served_fast(), 0U);
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
    const auto path = next_path();
    EXPECT_TRUE(expect_same(script_of(request(method, path, "never")), path));
  }
}

// What enters by a look at its fence must not pass a newer token that waits.
TEST_F(FastPathTest, ANewerTokenThatWaitsIsNotOvertaken) {
  const auto path = next_path();
  fast_.prepare(path);
  auto holder = fast_.guarded().connect();
  ASSERT_TRUE(holder.send(request("PUT", path, "hold=300ms")));
  (void)fast_.upstream().wait_for("seen", 2);
  auto newer = fast_.guarded().connect();
  ASSERT_TRUE(newer.send(bytes_of("PUT", path, claim(token + 1), "new")));
  ASSERT_TRUE(http::eventually([&] { return fast_.guarded().service().lanes().waiting == 1; }) ||
              fast_.upstream().applied().size() == 3);
  auto late = fast_.guarded().connect();
  ASSERT_TRUE(late.send(request("PUT", path, "")));
  EXPECT_EQ(late.receive().status, 412U);
  EXPECT_EQ(holder.receive().status, 204U);
  EXPECT_EQ(newer.receive().status, 204U);
  std::vector<std::string> bodies;
  for (const auto& event : fast_.upstream().applied()) bodies.push_back(event.body);
  EXPECT_THAT(bodies, testing::ElementsAre("x", "body", "new"));
}

// A client that goes away does not make its write known, nor unknown.
TEST_F(FastPathTest, AClientThatGoesAwayLeavesItsWriteToItsEnd) {
  const auto path = next_path();
  fast_.prepare(path);
  auto client = fast_.guarded().connect();
  ASSERT_TRUE(client.send(request("PUT", path, "hold=200ms")));
  (void)fast_.upstream().wait_for("seen", 2);
  client.reset();
  (void)fast_.upstream().wait_for("applied", 2);
  EXPECT_TRUE(http::eventually([&] { return fast_.guarded().service().lanes().in_flight == 0; }));
  EXPECT_EQ(fast_.guarded().service().lanes().settle_closures, 0);
  EXPECT_EQ(fast_.guarded().put(path, token).status, 204U);
}

TEST_F(FastPathTest, ADrainLetsARequestEndAndClosesWhatIsIdle) {
  const auto path = next_path();
  fast_.prepare(path);
  auto drained = fast_.guarded().connect();
  ASSERT_TRUE(drained.send(request("PUT", path, "hold=200ms")));
  (void)fast_.upstream().wait_for("seen", 2);
  auto idle = fast_.guarded().connect();
  ASSERT_TRUE(idle.send(request("GET", "/other", "status=200 body=1")));
  EXPECT_EQ(idle.receive().status, 200U);
  EXPECT_TRUE(fast_.guarded().service().drain(30s));
  const auto answer = drained.receive();
  EXPECT_EQ(answer.status, 204U);
  EXPECT_EQ(answer.field("Connection"), "close");
  EXPECT_TRUE(idle.is_closed_by_server());
}

TEST_F(FastPathTest, ACutEndsAWriteAsUnknown) {
  const auto path = next_path();
  fast_.prepare(path);
  auto client = fast_.guarded().connect();
  ASSERT_TRUE(client.send(request("PUT", path, "never")));
  (void)fast_.upstream().wait_for("seen", 2);
  (void)fast_.guarded().service().drain(100ms);
  const auto told = client.receive_to_end();
  EXPECT_TRUE(told.empty() || told.starts_with("HTTP/1.1 504 ")) << told;
  EXPECT_EQ(fast_.guarded().service().lanes().settle_closures, 1);
}

}  // namespace
}  // namespace fenceguard::test
