#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

// Short deadlines. The long ones are longer than the test's patience, so that only the short one can have
// ended the connection.
Limits with(std::chrono::milliseconds Limits::*deadline) {
  Limits limits;
  limits.idle_max = limits.header_max = limits.body_max = limits.write_max = 2 * patience;
  limits.*deadline = 150ms;
  return limits;
}

class SlowClientTest : public ::testing::Test {
 protected:
  // Sends a byte now and then until the server answers or closes.
  static void trickle(RawClient& client, std::string_view begin, char filler) {
    client.send(begin);
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (client.is_quiet() && std::chrono::steady_clock::now() < limit) {
      client.send({&filler, 1});
      std::this_thread::sleep_for(10ms);
    }
  }

  EchoHandler handler;
  Server server{1};
};

TEST_F(SlowClientTest, HeaderAByteAtATimeIs408) {
  RawClient client{server.listen("127.0.0.1:0", handler, with(&Limits::header_max))};
  trickle(client, "GET / HTTP/1.1\r\nHost: h\r\nA: ", 'x');
  const auto answer = client.receive();
  EXPECT_EQ(answer.status, 408U);
  EXPECT_EQ(answer.field("Connection"), "close");
}

TEST_F(SlowClientTest, BodyAByteAtATimeIs408) {
  const auto address = server.listen("127.0.0.1:0", handler, with(&Limits::body_max));
  RawClient sized{address};
  trickle(sized, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n", 'x');
  EXPECT_EQ(sized.receive().status, 408U);
  RawClient chunked{address};
  trickle(chunked, "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n", 'x');
  EXPECT_EQ(chunked.receive().status, 408U);
}

TEST_F(SlowClientTest, BodyThatNeverComesIs408) {
  RawClient client{server.listen("127.0.0.1:0", handler, with(&Limits::body_max))};
  ASSERT_TRUE(client.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello"));
  EXPECT_EQ(client.receive().status, 408U);
}

TEST_F(SlowClientTest, IdleConnectionIsClosedWithoutAWord) {
  RawClient client{server.listen("127.0.0.1:0", handler, with(&Limits::idle_max))};
  EXPECT_TRUE(client.is_closed_by_server());
  EXPECT_FALSE(client.was_reset());
}

TEST_F(SlowClientTest, IdleTimeBeginsAnewAfterAnAnswer) {
  auto limits = with(&Limits::idle_max);
  limits.idle_max = 4s;
  RawClient client{server.listen("127.0.0.1:0", handler, limits)};
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 9; ++i) {
    std::this_thread::sleep_for(limits.idle_max / 8);
    ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    ASSERT_EQ(client.receive().status, 200U);
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begin, limits.idle_max);
  EXPECT_TRUE(client.is_closed_by_server());
}

// Shows that a client which does not read its answer is cut. How: the answer is larger than what socket
// buffers hold.
TEST_F(SlowClientTest, ClientThatDoesNotReadItsAnswerIsCut) {
  auto limits = with(&Limits::write_max);
  HoldingHandler holding;
  RawClient client{server.listen("127.0.0.1:0", holding, limits)};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  std::atomic<bool> was_undelivered{false};
  auto response = text_response(std::string(50'000'000, 'x'));
  response.undelivered = [&] { was_undelivered = true; };
  holding.take().reply(std::move(response));
  EXPECT_TRUE(eventually([&] { return was_undelivered.load(); }));
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST_F(SlowClientTest, ASlowHandlerIsNoFaultOfTheClient) {
  auto limits = with(&Limits::header_max);
  limits.body_max = limits.write_max = limits.header_max;
  // The client has as long for its request.
  limits.idle_max = 4s;
  HoldingHandler holding;
  RawClient client{server.listen("127.0.0.1:0", holding, limits)};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  auto held = holding.take();
  std::this_thread::sleep_for(limits.idle_max + 4 * limits.write_max);
  held.reply(text_response("late, but here"));
  EXPECT_EQ(client.receive().body, "late, but here");
}

}  // namespace
}  // namespace fenceguard::http
