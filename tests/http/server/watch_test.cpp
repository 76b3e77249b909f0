#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

class WatchTest : public ::testing::Test {
 protected:
  HoldingHandler::Held ask(RawClient& client) {
    client.send("POST /v1/leases HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}");
    return handler.take();
  }

  Response lease() {
    auto response = text_response("lease");
    response.undelivered = [this] { ++undelivered; };
    return response;
  }

  HoldingHandler handler;
  std::atomic<int> gone{0};
  std::atomic<int> undelivered{0};
  Server server{2};
  std::string address = server.listen("127.0.0.1:0", handler, {});
};

TEST_F(WatchTest, ClientThatClosesWhileWaitingIsGone) {
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] { ++gone; });
  client.close();
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
  held.reply(lease());
  EXPECT_TRUE(eventually([&] { return undelivered == 1; }));
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
  EXPECT_EQ(gone, 1);
}

TEST_F(WatchTest, ResetIsGoneToo) {
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] { ++gone; });
  client.reset();
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
  held.reply({});
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST_F(WatchTest, ClientThatStaysIsNotGone) {
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] { ++gone; });
  held.reply(lease());
  EXPECT_EQ(client.receive().body, "lease");
  auto next = ask(client);
  next.reply(lease());
  EXPECT_EQ(client.receive().body, "lease");
  EXPECT_EQ(gone, 0);
  EXPECT_EQ(undelivered, 0);
}

TEST_F(WatchTest, PipelinedBytesAreNoDisconnectAndAreNotLost) {
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] { ++gone; });
  ASSERT_TRUE(client.send("GET /n"));
  ASSERT_TRUE(client.send("ext HTTP/1.1\r\nHost: h\r\n\r\n"));
  held.reply(lease());
  EXPECT_EQ(client.receive().body, "lease");
  auto next = handler.take();
  EXPECT_EQ(next.request.target, "/next");
  next.reply(text_response("second"));
  EXPECT_EQ(client.receive().body, "second");
  EXPECT_EQ(gone, 0);
}

TEST_F(WatchTest, DisconnectBehindPipelinedBytesIsSeen) {
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] { ++gone; });
  ASSERT_TRUE(client.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n"));
  client.close();
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
  held.reply({});
}

TEST_F(WatchTest, DisconnectBehindMoreThanIsReadAheadIsSeen) {
  const std::string request =
      fmt::format("GET /next HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", std::string(8000, 'x'));
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] { ++gone; });
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client.send(request));
  client.close();
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
  held.reply(lease());
  EXPECT_TRUE(eventually([&] { return undelivered == 1; }));
}

TEST_F(WatchTest, AnswerWaitsForNoLookBehindPipelinedBytes) {
  const std::string request =
      fmt::format("GET /next HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", std::string(8000, 'x'));
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] { ++gone; });
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client.send(request));
  held.reply(lease());
  EXPECT_EQ(client.receive().body, "lease");
  for (int i = 0; i < 10; ++i) {
    handler.take().reply(text_response("next"));
    EXPECT_EQ(client.receive().body, "next");
  }
  EXPECT_EQ(gone, 0);
}

TEST_F(WatchTest, WatchingAClosedConnectionReportsAtOnce) {
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] { ++gone; });
  client.close();
  ASSERT_TRUE(eventually([&] { return gone == 1; }));
  held.caller->watch([this] { ++gone; });
  EXPECT_EQ(gone, 2);
  held.reply({});
}

TEST_F(WatchTest, CallbackThatHoldsItsOwnReplyIsLetGo) {
  RawClient client{address};
  auto held = ask(client);
  const std::weak_ptr<Caller> caller = held.caller;
  held.caller->watch([reply = held.reply, kept = held.caller] { reply({}); });
  held.reply(lease());
  EXPECT_EQ(client.receive().body, "lease");
  held = {};
  EXPECT_TRUE(eventually([&] { return caller.expired(); }));
}

TEST_F(WatchTest, AnswerGivenBecauseTheClientIsGoneIsUndelivered) {
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this, reply = held.reply] { reply(lease()); });
  held = {};
  client.close();
  EXPECT_TRUE(eventually([&] { return undelivered == 1; }));
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST_F(WatchTest, UndeliveredIsCalledWithoutAWatchToo) {
  RawClient client{address};
  auto held = ask(client);
  client.close();
  // The kernel tells the server's side of the loopback at once; nothing else says so without a watch.
  held.reply(lease());
  EXPECT_TRUE(eventually([&] { return undelivered == 1; }));
}

TEST_F(WatchTest, ThrowingCallbacksDoNoHarm) {
  RawClient client{address};
  auto held = ask(client);
  held.caller->watch([this] {
    ++gone;
    throw std::runtime_error("broken");
  });
  client.close();
  ASSERT_TRUE(eventually([&] { return gone == 1; }));
  Response response;
  response.undelivered = [this] {
    ++undelivered;
    throw 42;
  };
  held.reply(std::move(response));
  EXPECT_TRUE(eventually([&] { return undelivered == 1; }));
  RawClient another{address};
  ask(another).reply(text_response("alive"));
  EXPECT_EQ(another.receive().body, "alive");
}

TEST_F(WatchTest, WorksOverAUnixSocket) {
  test::TempDir folder;
  const auto path = "unix:" + folder.file("guard.sock");
  ASSERT_EQ(server.listen(path, handler, {}), path);
  RawClient client{path};
  auto held = ask(client);
  EXPECT_TRUE(held.request.local_socket);
  held.caller->watch([this] { ++gone; });
  client.close();
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
  held.reply({});
}

}  // namespace
}  // namespace fenceguard::http
