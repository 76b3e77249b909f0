#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <thread>

#include "tests/conformance/scale.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

constexpr std::size_t mib = 1024 * 1024;

// Short deadlines. The long ones are longer than the test's patience, so that only the short one can have
// ended the connection.
Limits long_limits() {
  Limits limits;
  limits.body_bytes_max = Limits::no_bound;
  limits.idle_max = limits.header_max = limits.body_max = limits.write_max = 2 * patience;
  return limits;
}

Limits with(std::chrono::milliseconds Limits::*deadline, std::chrono::milliseconds duration = 200ms) {
  auto limits = long_limits();
  limits.*deadline = duration;
  return limits;
}

// Sends back what comes, piece by piece.
Task<void> echo_pieces(Stream& stream) {
  std::string piece;
  if (!co_await stream.begin(text_response({}), stream.body_bytes())) co_return;
  for (auto state = Piece::some; state == Piece::some;) {
    piece.clear();
    state = co_await stream.read_body(piece, 64 * 1024);
    if (state != Piece::some && state != Piece::end) co_return;
    if (!piece.empty() && !co_await stream.write(piece)) co_return;
  }
  (void)co_await stream.finish();
}

class StreamLimitsTest : public ::testing::Test {
 protected:
  std::string listen(const Limits& limits) { return server.listen("127.0.0.1:0", handler, limits); }

  static std::string put(std::size_t bytes) {
    return fmt::format("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", bytes);
  }

  // Takes a body but does not keep it, and counts how the reading ended.
  void swallow() {
    handler.script = [this](Stream& stream) -> Task<void> {
      std::string piece;
      auto state = Piece::some;
      while (state == Piece::some) {
        piece.clear();
        state = co_await stream.read_body(piece, 64 * 1024);
      }
      if (state == Piece::late) ++late;
      if (state == Piece::gone) ++gone;
      if (state == Piece::end) (void)co_await stream.respond(text_response("whole"));
    };
  }

  ScriptedStreams handler;
  std::atomic<int> late{0};
  std::atomic<int> gone{0};
  Server server{2};
};

TEST_F(StreamLimitsTest, BodyThatTricklesIsLateAnd408) {
  swallow();
  const auto address = listen(with(&Limits::body_max));
  for (const auto& head :
       {put(100'000),
        std::string{"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n"}}) {
    RawClient client{address};
    client.send(head);
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (client.is_quiet() && std::chrono::steady_clock::now() < limit) {
      client.send("x");
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(client.receive().status, 408U);
  }
  EXPECT_EQ(late, 2);
}

// Shows that a long body has as much more time as came of it, and no more. How: the deadline is shorter than
// the body takes, though that comes sooner than it must; then a body stops in the middle, where it has earned
// one second.
TEST_F(StreamLimitsTest, LongBodyEarnsTimeWithWhatCameAndNoMore) {
  swallow();
  const auto limits = with(&Limits::body_max, 1500ms);
  const auto address = listen(limits);
  const std::string piece(64 * 1024, 'x');
  const std::string first(mib + piece.size(), 'x');
  const std::string much(2 * mib, 'x');
  RawClient steady{address};
  ASSERT_TRUE(steady.send(put(much.size() + 12 * piece.size()) + much));
  for (int i = 0; i < 12; ++i) {
    std::this_thread::sleep_for(limits.body_max / 8);
    ASSERT_TRUE(steady.send(piece));
  }
  EXPECT_EQ(steady.receive().body, "whole");
  RawClient stopping{address};
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(stopping.send(put(100 * mib) + first));
  EXPECT_EQ(stopping.receive().status, 408U);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, limits.body_max + 900ms);
  EXPECT_EQ(late, 1);
}

TEST_F(StreamLimitsTest, HandlerThatTakesItsTimeIsNotTheClientsFault) {
  const auto limits = with(&Limits::body_max);
  std::atomic<bool> is_sent{false};
  handler.script = [&](Stream& stream) -> Task<void> {
    std::string body;
    EXPECT_EQ(co_await stream.read_body(body, 1), Piece::some);
    const auto end = std::chrono::steady_clock::now() + 3 * limits.body_max;
    co_await loop_until([&] { return is_sent && std::chrono::steady_clock::now() > end; });
    EXPECT_EQ(co_await read_all(stream, body), Piece::end);
    (void)co_await stream.respond(text_response(body));
  };
  RawClient client{listen(limits)};
  ASSERT_TRUE(client.send(put(10) + "hello"));
  std::this_thread::sleep_for(2 * limits.body_max);
  ASSERT_TRUE(client.send("world"));
  is_sent = true;
  EXPECT_EQ(client.receive().body, "helloworld");
}

TEST_F(StreamLimitsTest, ReaderThatTakesNothingIsCut) {
  std::atomic<bool> is_refused{false};
  handler.script = [&](Stream& stream) -> Task<void> {
    const std::string piece(64 * 1024, 'x');
    if (!co_await stream.begin(text_response({}), std::nullopt)) co_return;
    while (co_await stream.write(piece)) {
    }
    is_refused = true;
  };
  RawClient client{listen(with(&Limits::write_max))};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_TRUE(eventually([&] { return is_refused.load(); }));
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST_F(StreamLimitsTest, ReaderThatIsSlowerThanOneDeadlineInAllGetsItAll) {
  const auto limits = with(&Limits::write_max, 4s);
  constexpr int pieces = 24;
  handler.script = [](Stream& stream) -> Task<void> {
    const std::string piece(mib, 'x');
    EXPECT_TRUE(co_await stream.begin(text_response({}), pieces * mib));
    for (int i = 0; i < pieces; ++i) EXPECT_TRUE(co_await stream.write(piece));
    EXPECT_TRUE(co_await stream.finish());
  };
  RawClient client{listen(limits)};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  std::size_t taken = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < pieces; ++i) {
    std::this_thread::sleep_for(limits.write_max / 12);
    taken += client.take(mib);
  }
  taken += client.receive_to_end().size();
  EXPECT_GT(taken, pieces * mib);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, limits.write_max);
}

TEST_F(StreamLimitsTest, LimitForBodiesHoldsWhereItIsSet) {
  Limits limits;
  limits.body_bytes_max = 10;
  const auto address = listen(limits);
  for (const auto& [bytes, status] :
       {std::pair{put(10) + "0123456789", 200U}, std::pair{put(11), 413U},
        std::pair{std::string{"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n"},
                  413U}}) {
    RawClient client{address};
    ASSERT_TRUE(client.send(bytes));
    EXPECT_EQ(client.receive().status, status);
  }
}

std::size_t resident_bytes() {
  std::ifstream statm{"/proc/self/statm"};
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Shows that a body of any size passes in bounded memory. How: it is sent back while it comes, with a length
// and in chunks; the process, client included, must not grow.
TEST_F(StreamLimitsTest, LargeBodyPassesBothWaysInBoundedMemory) {
  handler.script = echo_pieces;
  const auto address = listen(long_limits());
  const auto pieces = static_cast<std::size_t>(test::scaled(256));
  const std::string piece(mib, 'p');
  const auto before = resident_bytes();
  for (const bool is_chunked : {false, true}) {
    RawClient client{address};
    std::thread sender{[&] {
      client.send(is_chunked ? "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                             : put(pieces * mib));
      for (std::size_t i = 0; i < pieces; ++i) {
        if (is_chunked) client.send("100000\r\n");
        client.send(piece);
        if (is_chunked) client.send("\r\n");
      }
      if (is_chunked) client.send("0\r\n\r\n");
      client.shutdown_send();
    }};
    std::size_t taken = 0;
    while (const auto bytes = client.take(mib)) taken += bytes;
    sender.join();
    EXPECT_GT(taken, pieces * mib);
    EXPECT_FALSE(client.was_reset());
  }
  EXPECT_LT(resident_bytes(), before + 32 * mib);
}

TEST_F(StreamLimitsTest, WatchTellsOfAClientThatGoesAway) {
  std::atomic<int> told{0};
  handler.script = [&](Stream& stream) -> Task<void> {
    bool is_told = false;
    stream.watch([&] { is_told = true; });
    co_await loop_until([&] { return is_told; });
    co_await stream.stop_watching();
    ++told;
  };
  const auto address = listen({});
  RawClient closing{address};
  ASSERT_TRUE(closing.send("GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /pipelined HTTP/1.1\r\n"));
  ASSERT_TRUE(eventually([&] { return server.in_flight() == 1; }));
  closing.close();
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  RawClient resetting{address};
  ASSERT_TRUE(resetting.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(eventually([&] { return server.in_flight() == 1; }));
  resetting.reset();
  EXPECT_TRUE(eventually([&] { return told == 2; }));
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST_F(StreamLimitsTest, WatchLosesNothingThatWasPipelined) {
  std::atomic<bool> is_sent{false};
  handler.script = [&](Stream& stream) -> Task<void> {
    bool is_told = false;
    stream.watch([&] { is_told = true; });
    co_await loop_until([&] { return is_sent.load(); });
    // In each turn the loop also looks for what has come.
    int turns = 0;
    co_await loop_until([&] { return ++turns > 10; });
    co_await stream.stop_watching();
    EXPECT_FALSE(is_told);
    (void)co_await stream.respond(text_response(stream.request().target));
  };
  RawClient client{listen({})};
  ASSERT_TRUE(client.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(eventually([&] { return server.in_flight() == 1; }));
  ASSERT_TRUE(client.send("GET /2 HT"));
  is_sent = true;
  EXPECT_EQ(client.receive().body, "/1");
  ASSERT_TRUE(client.send("TP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.receive().body, "/2");
}

TEST_F(StreamLimitsTest, DrainWaitsForStreamsAndTheirAnswerIsTheLast) {
  std::atomic<bool> goes_on{false};
  handler.script = [&](Stream& stream) -> Task<void> {
    co_await loop_until([&] { return goes_on.load(); });
    (void)co_await stream.respond(text_response("done"));
  };
  const auto address = listen({});
  RawClient client{address};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(eventually([&] { return server.in_flight() == 1; }));
  // An idle connection of each of the two loops: its end says that the loop has begun to drain.
  RawClient one{address};
  RawClient other{address};
  ASSERT_TRUE(eventually([&] { return server.connections() == 3; }));
  auto drained = std::async(std::launch::async, [&] { return server.drain(patience); });
  EXPECT_TRUE(one.is_closed_by_server());
  EXPECT_TRUE(other.is_closed_by_server());
  EXPECT_EQ(drained.wait_for(50ms), std::future_status::timeout);
  goes_on = true;
  const auto answer = client.receive();
  EXPECT_EQ(answer.body, "done");
  EXPECT_EQ(answer.field("Connection"), "close");
  client.close();
  EXPECT_TRUE(drained.get());
}

// Shows that a cut ends every kind of wait. How: one stream each that waits for a body, for a reader, and for
// something else under a watch.
TEST_F(StreamLimitsTest, CutEndsEveryWaitOfAStream) {
  std::atomic<int> ended{0};
  handler.script = [&](Stream& stream) -> Task<void> {
    const auto& target = stream.request().target;
    std::string piece(mib, 'x');
    if (target == "/body") {
      EXPECT_EQ(co_await read_all(stream, piece), Piece::gone);
    } else if (target == "/write") {
      EXPECT_TRUE(co_await stream.begin(text_response({}), std::nullopt));
      while (co_await stream.write(piece)) {
      }
    } else {
      bool is_told = false;
      stream.watch([&] { is_told = true; });
      co_await loop_until([&] { return is_told; });
    }
    EXPECT_EQ(co_await stream.read_body(piece, 1), stream.has_body() ? Piece::gone : Piece::end);
    EXPECT_FALSE(co_await stream.respond(text_response("too late")));
    ++ended;
  };
  const auto address = listen({});
  std::vector<RawClient> clients;
  for (const char* target : {"/body", "/write", "/watch"}) {
    clients.emplace_back(address);
    ASSERT_TRUE(
        clients.back().send(fmt::format("PUT {} HTTP/1.1\r\nHost: h\r\n{}\r\n", target,
                                        target == std::string_view{"/body"} ? "Content-Length: 9\r\n" : "")));
  }
  ASSERT_TRUE(eventually([&] { return server.in_flight() == 3; }));
  EXPECT_FALSE(server.drain(20ms));
  EXPECT_EQ(ended, 3);
  for (auto& client : clients) (void)client.receive_to_end();
  EXPECT_TRUE(clients[1].was_reset());
}

}  // namespace
}  // namespace fenceguard::http
