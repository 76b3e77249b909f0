#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "guard/error.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

class DrainTest : public ::testing::Test {
 protected:
  // Returns once the server has begun to drain, on each of its two loops: there an idle connection ends.
  std::future<bool> begin_drain(std::chrono::milliseconds timeout = patience) {
    const auto open = server->connections();
    RawClient one{address};
    RawClient other{address};
    EXPECT_TRUE(eventually([&] { return server->connections() == open + 2; }));
    auto drained = std::async(std::launch::async, [this, timeout] { return server->drain(timeout); });
    EXPECT_TRUE(eventually([this] {
      try {
        RawClient probe{address};
        return false;
      } catch (const std::runtime_error&) {
        return true;
      }
    }));
    EXPECT_TRUE(one.is_closed_by_server());
    EXPECT_TRUE(other.is_closed_by_server());
    return drained;
  }

  HoldingHandler handler;
  std::unique_ptr<Server> server = std::make_unique<Server>(2);
  std::string address = server->listen("127.0.0.1:0", handler, {});
};

TEST_F(DrainTest, WithNothingOpenIsDoneAtOnce) {
  EXPECT_TRUE(server->drain(patience));
  EXPECT_TRUE(server->drain(0ms));
  EXPECT_THROW((void)server->listen("127.0.0.1:0", handler, {}), Unavailable);
}

TEST_F(DrainTest, IdleConnectionsAreClosed) {
  std::vector<RawClient> clients;
  for (int i = 0; i < 10; ++i) clients.emplace_back(address);
  ASSERT_TRUE(eventually([&] { return server->connections() == 10; }));
  EXPECT_TRUE(server->drain(patience));
  for (auto& client : clients) EXPECT_TRUE(client.is_closed_by_server());
}

TEST_F(DrainTest, RequestsThatWereBegunEnd) {
  RawClient handled{address};
  RawClient begun{address};
  ASSERT_TRUE(handled.send("GET /handled HTTP/1.1\r\nHost: h\r\n\r\n"));
  auto held = handler.take();
  ASSERT_TRUE(
      begun.send("PUT /begun HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"));
  ASSERT_EQ(begun.receive().status, 100U);
  auto drained = begin_drain();
  held.reply(text_response("a"));
  const auto answer = handled.receive();
  EXPECT_EQ(answer.body, "a");
  EXPECT_EQ(answer.field("Connection"), "close");
  ASSERT_TRUE(begun.send("body"));
  auto second = handler.take();
  EXPECT_EQ(second.request.body, "body");
  second.reply(text_response("b"));
  EXPECT_EQ(begun.receive().body, "b");
  EXPECT_TRUE(handled.is_closed_by_server());
  EXPECT_TRUE(begun.is_closed_by_server());
  EXPECT_FALSE(begun.was_reset());
  handled.close();
  begun.close();
  EXPECT_TRUE(drained.get());
}

TEST_F(DrainTest, WhatDoesNotEndIsCutAndItsLateReplyIsUndelivered) {
  RawClient client{address};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  auto held = handler.take();
  std::atomic<int> gone{0};
  held.caller->watch([&] { ++gone; });
  EXPECT_FALSE(server->drain(50ms));
  EXPECT_TRUE(client.is_closed_by_server());
  EXPECT_EQ(gone, 1);
  std::atomic<int> undelivered{0};
  Response response;
  response.undelivered = [&] { ++undelivered; };
  held.reply(std::move(response));
  EXPECT_TRUE(eventually([&] { return undelivered == 1; }));
  EXPECT_EQ(server->in_flight(), 0);
}

TEST_F(DrainTest, ReplyAfterTheServerIsGoneDoesNothing) {
  RawClient answered{address};
  RawClient forgotten{address};
  ASSERT_TRUE(answered.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n"));
  auto first = handler.take();
  ASSERT_TRUE(forgotten.send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"));
  auto second = handler.take();
  server.reset();
  std::atomic<int> undelivered{0};
  Response response;
  response.undelivered = [&] { ++undelivered; };
  first.reply(std::move(response));
  first.caller->watch([] {});
  second = {};
  EXPECT_EQ(undelivered, 0);
  EXPECT_TRUE(answered.is_closed_by_server());
}

TEST_F(DrainTest, ClientThatIgnoresTheEndDoesNotHoldItUpForEver) {
  RawClient client{address};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  auto held = handler.take();
  auto drained = begin_drain();
  held.reply({});
  EXPECT_TRUE(drained.get());
}

// Shows that replies, disconnects and the end of the server may meet in any order. How: many rounds in which
// all happen at once on several threads; the sanitizers judge.
TEST(DrainRaceTest, RepliesAndTheEndOfTheServerMayMeet) {
  for (int round = 0; round < 30; ++round) {
    HoldingHandler handler;
    auto server = std::make_unique<Server>(2);
    const auto address = server->listen("127.0.0.1:0", handler, {});
    std::vector<RawClient> clients;
    std::vector<HoldingHandler::Held> held;
    for (int i = 0; i < 16; ++i) {
      clients.emplace_back(address);
      ASSERT_TRUE(clients.back().send("GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"));
      held.push_back(handler.take());
    }
    std::thread replying{[&] {
      for (auto& one : held) {
        one.caller->watch([] {});
        one.reply(text_response("a"));
      }
    }};
    std::thread leaving{[&] { clients.clear(); }};
    if (round % 3 == 0) server->drain(1ms);
    server.reset();
    replying.join();
    leaving.join();
  }
}

}  // namespace
}  // namespace fenceguard::http
