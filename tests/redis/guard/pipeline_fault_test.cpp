// What is unknown, forgotten by the server or late, in the middle of a pipeline.

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/process/byte_cut.hpp"
#include "tests/redis/guard/pipeline.hpp"

namespace fenceguard::test {
namespace {

// A filter for Proxy: keeps back the first piece to the server that is chosen, and cuts its connection.
// deliver() brings it to the server after all, as a network does that was slow.
class LatePiece {
 public:
  explicit LatePiece(std::function<bool(std::string_view)> is_chosen) : is_chosen_{std::move(is_chosen)} {}

  [[nodiscard]] Proxy::Filter filter() {
    return [this](std::size_t, Proxy::Direction direction, std::string_view piece) {
      const std::scoped_lock lock{mutex_};
      if (direction != Proxy::Direction::to_server || !piece_.empty() || !is_chosen_(piece))
        return piece.size();
      piece_ = piece;
      return std::size_t{0};
    };
  }

  // The server's answer.
  std::string deliver(int port) {
    const std::scoped_lock lock{mutex_};
    const int descriptor = connect_to(port);
    char answer[1'024];
    const auto sent = send(descriptor, piece_.data(), piece_.size(), MSG_NOSIGNAL);
    const auto size = recv(descriptor, answer, sizeof answer, 0);
    close(descriptor);
    EXPECT_EQ(sent, static_cast<ssize_t>(piece_.size()));
    return {answer, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }

 private:
  const std::function<bool(std::string_view)> is_chosen_;
  std::mutex mutex_;  // guards the following
  std::string piece_;
};

// What is told to be unavailable was not run, the others were in their order, and the next pipeline is whole
// again.
TEST_F(GuardPipeline, AForgottenScriptIsSentAgainAndTheOrderStays) {
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    const bool forgets = round % 2 == 1;
    if (forgets) server_.call({"SCRIPT", "FLUSH"});
    if (round == 3) (void)guard_.write(claim_of(7), {"SET", "{r}a", "1"});
    if (round == 5) (void)guard_.advance(claim_of(7));
    const auto list = fmt::format("{{r}}{}", round);
    std::vector<Write> writes;
    for (int i = 0; i < 30; ++i) {
      const auto claim = i % 7 == 6 ? claim_of(7, "h", "r", 100 * round + i) : claim_of(7);
      writes.push_back({claim, {{"RPUSH", list, std::to_string(i)}}});
    }
    const auto endings = endings_of(pipeline(writes));
    std::vector<std::string> written;
    for (std::size_t i = 0; i < endings.size(); ++i) {
      if (endings[i] == "admitted") written.push_back(std::to_string(i));
      EXPECT_TRUE(endings[i] == "admitted" || (forgets && endings[i] == "unavailable")) << i << endings[i];
    }
    std::vector<std::string> found;
    for (const auto& element : server_.call({"LRANGE", list, "0", "-1"}).elements)
      found.push_back(element.text);
    EXPECT_EQ(found, written);
  }
}

// What is sent a second time may be on its way for long. Nothing of its resource goes after it, so that it
// overwrites nothing that was acknowledged.
TEST_F(GuardPipeline, OfARefusedRunNothingIsSentAfterAPartThatIsUnknown) {
  server_.call(
      {"ACL", "SETUSER", "app", "reset", "on", ">pw", "&*", "+@all", "~fenceguard:*", "~{r}a", "~{s}a"});
  LatePiece late{[](std::string_view piece) {
    return piece.find("value-1") != piece.npos && piece.find("value-2") == piece.npos;
  }};
  const Proxy proxy{server_.port(), late.filter()};
  redis::Client client{fmt::format("redis://app:pw@127.0.0.1:{}", proxy.port())};
  redis::Guard guard{client};
  EXPECT_EQ(guard.write(claim_of(7), {"SET", "{r}a", "0"}).ruling.verdict, Verdict::admitted);
  auto writes =
      writes_of(claim_of(7), {{"SET", "{r}a", "value-1"}, {"INCR", "{r}b"}, {"SET", "{r}a", "value-2"}});
  for (const auto& [resource, token] : {std::pair{"s", 7}, {"r", 8}}) {
    const auto key = fmt::format("{{{}}}a", resource);
    const auto more = writes_of(claim_of(token, "h", resource),
                                {{"SET", key, "value-3"}, {"INCR", fmt::format("{{{}}}b", resource)}});
    writes.insert(writes.end(), more.begin(), more.end());
  }
  EXPECT_EQ(endings_of(guard.pipeline(writes)),
            (std::vector<std::string>{"unknown", "unavailable", "unavailable", "admitted", "unavailable",
                                      "unavailable", "unavailable"}));
  EXPECT_EQ(get("{r}a"), "0");
  EXPECT_EQ(get("{s}a"), "value-3");
  EXPECT_EQ(late.deliver(server_.port()), "+OK\r\n");
  EXPECT_EQ(get("{r}a"), "value-1");
}

TEST_F(GuardPipeline, OfForgottenScriptsNothingIsSentAfterOneThatIsUnknown) {
  LatePiece late{[](std::string_view piece) {
    return piece.find("\r\nEVAL\r\n") != piece.npos && piece.find("value-1") != piece.npos;
  }};
  const Proxy proxy{server_.port(), late.filter()};
  redis::Client client{fmt::format("redis://127.0.0.1:{}", proxy.port())};
  redis::Guard guard{client};
  const auto pair = [](const std::string& resource, const std::string& value) {
    return Write{
        claim_of(7, "h", resource),
        {{"SET", fmt::format("{{{}}}a", resource), value}, {"DEL", fmt::format("{{{}}}b", resource)}}};
  };
  const auto before = guard.pipeline(std::vector<Write>{pair("r", "0"), pair("s", "0")});
  EXPECT_EQ(endings_of(before), std::vector<std::string>(2, "admitted"));
  server_.call({"SCRIPT", "FLUSH"});
  const std::vector<Write> writes{pair("r", "value-1"), pair("r", "value-2"), pair("s", "value-2")};
  EXPECT_EQ(endings_of(guard.pipeline(writes)),
            (std::vector<std::string>{"unknown", "unavailable", "admitted"}));
  EXPECT_EQ(get("{r}a"), "0");
  EXPECT_EQ(get("{s}a"), "value-2");
  EXPECT_TRUE(late.deliver(server_.port()).starts_with("*"));
  EXPECT_EQ(get("{r}a"), "value-1");
}

// Fails at the first byte of an answer, at the second, ...: a run whose answer was not seen in full is
// unknown for each, and took effect for all of them or for none.
TEST_F(GuardPipeline, OfARunWhoseAnswerIsNotSeenAllIsUnknown) {
  (void)guard_.advance(claim_of(7));
  ByteCut cut;
  const Proxy proxy{server_.port(), cut.filter()};
  const auto url = fmt::format("redis://127.0.0.1:{}?timeout=5s", proxy.port());
  std::int64_t expected = 0;
  int unknown = 0, nothing = 0;
  for (const auto direction : {Proxy::Direction::to_server, Proxy::Direction::to_client}) {
    const auto write = [&] {
      redis::Client client{url};
      return endings_of(
          redis::Guard{client}.pipeline(writes_of(claim_of(7), std::vector<Command>(5, {"INCR", "{r}n"}))));
    };
    cut.watch(direction);
    (void)write();
    const auto total = cut.seen();
    for (std::int64_t bytes = 0;; bytes = ByteCut::after(bytes, total)) {
      SCOPED_TRACE(bytes);
      cut.arm(direction, bytes);
      const auto before = get("{r}n");
      try {
        const auto endings = write();
        EXPECT_EQ(endings, std::vector<std::string>(5, endings.front()));
        if (endings.front() == "admitted") expected = 5;
        if (endings.front() == "unknown") ++unknown;
        if (endings.front() != "unavailable") {
          EXPECT_NE(endings.front(), "stale");
        }
        const auto grown = std::atoll(get("{r}n").c_str()) - std::atoll(before.c_str());
        EXPECT_TRUE(grown == 5 || (grown == 0 && endings.front() != "admitted")) << grown;
        if (endings.front() == "unavailable") {
          EXPECT_EQ(grown, 0);
        }
      } catch (const Unavailable&) {
        ++nothing;
        EXPECT_EQ(get("{r}n"), before);
      }
      if (!cut.has_cut()) break;
    }
  }
  EXPECT_EQ(expected, 5);
  EXPECT_GT(unknown, 20);
  EXPECT_GT(nothing, 10);
}

// A new holder comes every few milliseconds while others go on with runs under what they have: below a token
// no write lands after the advance.
TEST_F(GuardPipeline, NoStaleRunLandsAfterAnAdvance) {
  std::atomic<std::int64_t> token{1};
  std::atomic<bool> stop{false};
  std::atomic<int> stale{0}, admitted{0};
  (void)guard_.advance(claim_of(1, "1"));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      redis::Client client{server_.url("?timeout=60s")};
      redis::Guard guard{client};
      while (!stop) {
        const auto mine = std::to_string(token);
        for (int again = 0; again < 5; ++again) {
          const auto endings = endings_of(
              guard.pipeline(writes_of(claim_of(std::stoll(mine), mine),
                                       {{"SET", "{r}a", mine}, {"GET", "{r}a"}, {"APPEND", "{r}b", "x"}})));
          EXPECT_EQ(endings, std::vector<std::string>(3, endings.front()));
          ++(endings.front() == "admitted" ? admitted : stale);
        }
      }
    });
  }
  // So many, or as many as the threads need for their runs.
  for (int i = 2; i < 300 || ((stale <= 50 || admitted <= 50) && i < 30'000); ++i) {
    const auto mine = std::to_string(i);
    EXPECT_EQ(guard_.advance(claim_of(i, mine)).verdict, Verdict::admitted);
    const auto seen = get("{r}a");
    token = i;
    (void)guard_.write(claim_of(i, mine), {"SET", "{r}a", mine});
    for (int look = 0; look < 3; ++look) ASSERT_EQ(get("{r}a"), mine) << "after " << seen;
  }
  stop = true;
  threads.clear();
  EXPECT_GT(stale, 50);
  EXPECT_GT(admitted, 50);
}

}  // namespace
}  // namespace fenceguard::test
