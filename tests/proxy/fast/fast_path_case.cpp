#include "tests/proxy/fast/fast_path_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <regex>
#include <thread>

#include "server/proxy/upstream/upstream_pool.hpp"

namespace fenceguard::test {
namespace {

std::string without(const std::string& text, const char* pattern, const char* instead) {
  return std::regex_replace(text, std::regex{pattern}, instead);
}

GuardedOptions with(GuardedOptions options, bool has_fast_path) {
  options.has_fast_path = has_fast_path;
  return options;
}

}  // namespace

FastPathSide::FastPathSide(bool has_fast_path, const GuardedOptions& options)
    : guarded_{upstream_.url(), with(options, has_fast_path)} {}

void FastPathSide::prepare(const std::string& path) {
  ASSERT_EQ(guarded_.put(path, fast_path_token).status, 201U);
  std::this_thread::sleep_for(2 * proxy::UpstreamPool::rest_min);
  seen_before_ = upstream_.events().size();
}

std::vector<std::string> FastPathSide::play(const FastPathScript& script) {
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

std::vector<std::string> FastPathSide::seen() {
  std::vector<std::string> lines;
  const auto events = upstream_.events();
  for (auto i = seen_before_; i < events.size(); ++i) {
    const auto& event = events[i];
    if (event.kind == "answered" || event.kind == "cut") continue;
    auto head = without(event.head, "\r\nHost: 127.0.0.1:[0-9]+\r\n", "\r\nHost: upstream\r\n");
    auto line =
        fmt::format("{} {} {} {} {} {}", event.kind, event.method, event.path, event.size, event.crc, head);
    // How often a read is sent again depends on whether its connection was a kept one, and so on the time.
    const bool is_read = event.method == "GET" || event.method == "HEAD" || event.method == "OPTIONS";
    if (!is_read || std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
  }
  return lines;
}

FastPathTest::~FastPathTest() {
  EXPECT_EQ(slow_.guarded().service().served_fast(), 0U);
  EXPECT_THAT(fast_.upstream().anomalies(), testing::IsEmpty());
}

bool FastPathTest::expect_same(const FastPathScript& script, const std::string& path) {
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

std::string FastPathTest::request(const std::string& method, const std::string& path,
                                  const std::string& words) {
  auto fields = claim(token);
  if (!words.empty()) fields.emplace_back("Upstream-Do", words);
  return bytes_of(method, path, fields, method == "PUT" ? "body" : "");
}

}  // namespace fenceguard::test
