#include "server/http/server.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

class ServerTest : public ::testing::Test {
 protected:
  EchoHandler handler;
  Server server{2};
  std::string address = server.listen("127.0.0.1:0", handler, {});
};

TEST_F(ServerTest, AnswersOneRequestAfterAnotherOnOneConnection) {
  RawClient client{address};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(fmt::format("PUT /{} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", i)));
    const auto answer = client.receive();
    EXPECT_EQ(answer.status, 200U);
    EXPECT_EQ(answer.body, fmt::format("PUT /{} hello", i));
    EXPECT_EQ(answer.field("Date").value_or("").size(), 29U);
    EXPECT_FALSE(answer.field("Connection"));
  }
  EXPECT_EQ(server.connections(), 1);
}

// A handler that never gives its event loop back: the other loop goes on, and the server says that one hangs.
TEST(ServerAnswers, UnlessOneOfItsLoopsHangs) {
  class Hanging : public EchoHandler {
   public:
    void handle(Request request, std::shared_ptr<Caller> caller, Reply reply) override {
      has_begun.set_value();
      may_end.get_future().wait();
      EchoHandler::handle(std::move(request), std::move(caller), std::move(reply));
    }
    std::promise<void> has_begun;
    std::promise<void> may_end;
  };
  using namespace std::chrono_literals;
  Hanging handler;
  Server server{2};
  RawClient client{server.listen("127.0.0.1:0", handler, {})};
  EXPECT_TRUE(server.answers(10min));
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  handler.has_begun.get_future().wait();
  EXPECT_FALSE(server.answers(10ms));
  handler.may_end.set_value();
  EXPECT_EQ(client.receive().status, 200U);
  EXPECT_TRUE(server.answers(10min));
}

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
  RawClient client{address};
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += fmt::format("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", i);
  std::thread sender{[&] { client.send(requests); }};
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(client.receive().body, fmt::format("GET /{} ", i));
  sender.join();
}

TEST_F(ServerTest, AnswersHeldRequestsOfOnePipelineInOrder) {
  HoldingHandler holding;
  RawClient client{server.listen("127.0.0.1:0", holding, {})};
  ASSERT_TRUE(client.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"));
  for (const char* target : {"/1", "/2"}) {
    auto held = holding.take();
    EXPECT_EQ(held.request.target, target);
    held.reply(text_response(held.request.target));
    EXPECT_EQ(client.receive().body, target);
  }
}

TEST_F(ServerTest, ReadsChunkedBodies) {
  RawClient client{address};
  ASSERT_TRUE(client.send("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"));
  ASSERT_TRUE(client.send("1;x=y\r\n!\r\n0\r\nFencing-Token: 9\r\n\r\n"));
  EXPECT_EQ(client.receive().body, "PUT / hello!");
  ASSERT_TRUE(client.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.receive().body, "GET /next ");
}

TEST_F(ServerTest, ReadsAndWritesLargeBodies) {
  const std::string body(7'000'000, 'b');
  RawClient client{address};
  std::thread sender{[&] {
    client.send(fmt::format("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.size()));
    client.send(body);
  }};
  const auto answer = client.receive();
  sender.join();
  EXPECT_TRUE(answer.body == "PUT / " + body);
}

TEST_F(ServerTest, HeadHasALengthAndNoBody) {
  RawClient client{address};
  ASSERT_TRUE(client.send("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\nGET /y HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.receive(true).field("Content-Length"), "8");
  EXPECT_EQ(client.receive().body, "GET /y ");
}

TEST_F(ServerTest, Http10EndsTheConnectionUnlessAskedNotTo) {
  RawClient staying{address};
  ASSERT_TRUE(staying.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_EQ(staying.receive().field("Connection"), "keep-alive");
  ASSERT_TRUE(staying.send("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(staying.receive().field("Connection"), "close");
  EXPECT_TRUE(staying.is_closed_by_server());
  EXPECT_FALSE(staying.was_reset());
}

TEST_F(ServerTest, ClosesWhenTheClientAsksForIt) {
  RawClient client{address};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(client.receive().field("Connection"), "close");
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST_F(ServerTest, HalfClosedClientGetsItsAnswer) {
  RawClient client{address};
  ASSERT_TRUE(client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"));
  client.shutdown_send();
  EXPECT_EQ(client.receive().body, "GET /x ");
  EXPECT_TRUE(client.is_closed_by_server());
}

class PreviewHandler : public EchoHandler {
 public:
  std::optional<Response> preview(Request& head) override {
    if (head.target != "/refused") return std::nullopt;
    return refuse(428, "missing");
  }
};

TEST_F(ServerTest, ContinueIsSaidAfterThePreviewPassed) {
  PreviewHandler previewing;
  RawClient client{server.listen("127.0.0.1:0", previewing, {})};
  ASSERT_TRUE(client.send("PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.receive().status, 100U);
  ASSERT_TRUE(client.send("ok"));
  EXPECT_EQ(client.receive().body, "PUT /x ok");
  ASSERT_TRUE(
      client.send("PUT /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
  const auto refused = client.receive();
  EXPECT_EQ(refused.status, 428U);
  EXPECT_EQ(refused.field("Connection"), "close");
}

// Shows that a refusal reaches a client that is still sending its body. How: the body is larger than what
// socket buffers hold, and all of it is sent before the answer is read.
TEST_F(ServerTest, RefusalInTheMiddleOfABodyIsSeenByTheClient) {
  PreviewHandler previewing;
  RawClient client{server.listen("127.0.0.1:0", previewing, {})};
  const std::string body(8'000'000, 'b');
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(client.send(
      fmt::format("PUT /refused HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.size())));
  const bool is_taken = client.send(body);
  EXPECT_EQ(client.receive().status, 428U);
  EXPECT_TRUE(client.is_closed_by_server());
  // The server takes what still comes for two seconds and no longer.
  const bool is_late = std::chrono::steady_clock::now() - begin > 2s;
  EXPECT_TRUE(is_taken || is_late);
  EXPECT_TRUE(!client.was_reset() || is_late);
}

TEST_F(ServerTest, PreviewWithoutABodyKeepsTheConnection) {
  PreviewHandler previewing;
  RawClient client{server.listen("127.0.0.1:0", previewing, {})};
  ASSERT_TRUE(client.send("GET /refused HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.receive().status, 428U);
  ASSERT_TRUE(client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.receive().status, 200U);
}

class FaultyHandler : public EchoHandler {
 public:
  void handle(Request request, std::shared_ptr<Caller> caller, Reply reply) override {
    if (request.target == "/throw") throw std::runtime_error("broken");
    if (request.target == "/throw-other") throw 42;
    if (request.target == "/forget") return;
    if (request.target == "/twice") reply(text_response("first"));
    EchoHandler::handle(std::move(request), std::move(caller), std::move(reply));
  }
  std::optional<Response> preview(Request& head) override {
    if (head.target == "/throw-early") throw std::runtime_error("broken");
    return std::nullopt;
  }
  Response refuse(unsigned status, std::string_view why) override {
    if (status == 400) throw std::runtime_error("broken as well");
    return EchoHandler::refuse(status, why);
  }
};

TEST_F(ServerTest, FaultyHandlerCostsOneConnectionOnly) {
  FaultyHandler faulty;
  const auto faulty_address = server.listen("127.0.0.1:0", faulty, {});
  for (const char* target : {"/throw", "/throw-other", "/forget", "/throw-early"}) {
    RawClient client{faulty_address};
    ASSERT_TRUE(client.send(fmt::format("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", target)));
    EXPECT_EQ(client.receive().status, 500U) << target;
    EXPECT_TRUE(client.is_closed_by_server());
  }
  RawClient malformed{faulty_address};
  ASSERT_TRUE(malformed.send("GET x HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(malformed.receive().status, 400U);
  RawClient client{faulty_address};
  ASSERT_TRUE(client.send("GET /twice HTTP/1.1\r\nHost: h\r\n\r\nGET /fine HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.receive().body, "first");
  EXPECT_EQ(client.receive().body, "GET /fine ");
  EXPECT_TRUE(eventually([&] { return server.in_flight() == 0; }));
}

TEST_F(ServerTest, AnswersComeFromAnyThread) {
  HoldingHandler holding;
  const auto holding_address = server.listen("127.0.0.1:0", holding, {});
  std::vector<RawClient> clients;
  for (int i = 0; i < 20; ++i) clients.emplace_back(holding_address);
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(clients[i].send(fmt::format("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", i)));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        auto held = holding.take();
        held.reply(text_response(held.request.target));
      }
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(clients[i].receive().body, fmt::format("/{}", i));
  for (auto& thread : threads) thread.join();
}

TEST_F(ServerTest, CountsWhatIsInFlight) {
  HoldingHandler holding;
  RawClient client{server.listen("127.0.0.1:0", holding, {})};
  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  auto held = holding.take();
  EXPECT_EQ(server.in_flight(), 1);
  held.reply({});
  EXPECT_EQ(server.in_flight(), 0);
  EXPECT_EQ(client.receive().status, 200U);
}

TEST_F(ServerTest, BeyondTheLimitNewcomersAreClosedWhereAllAreBeingAnswered) {
  HoldingHandler holding;
  Limits limits;
  limits.connections_max = 2;
  const auto small = server.listen("127.0.0.1:0", holding, limits);
  RawClient first{small};
  RawClient second{small};
  for (auto* client : {&first, &second}) ASSERT_TRUE(client->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  auto held = holding.take();
  auto other = holding.take();
  RawClient third{small};
  EXPECT_TRUE(third.is_closed_by_server());
  held.reply({});
  other.reply({});
  EXPECT_EQ(first.receive().status, 200U);
  EXPECT_EQ(second.receive().status, 200U);
}

// Shows that connections which say nothing, or not all of a head, lock nobody out. How: with the server full
// of them one after another comes, and each is answered.
TEST_F(ServerTest, TheConnectionThatHasWaitedLongestGivesWayToANewcomer) {
  Limits limits;
  limits.connections_max = 4;
  limits.idle_max = limits.header_max = 10 * patience;
  Server narrow{1};  // with several loops it is the one that has waited longest on one of them
  const auto small = narrow.listen("127.0.0.1:0", handler, limits);
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<RawClient>(small));
    ASSERT_TRUE(idle.back()->send(i % 2 == 1 ? "GET /begun HTTP/1.1\r\n" : ""));
  }
  ASSERT_TRUE(eventually([&] { return narrow.connections() == 4; }));
  std::vector<std::unique_ptr<RawClient>> newcomers;
  for (auto& oldest : idle) {
    auto& newcomer = *newcomers.emplace_back(std::make_unique<RawClient>(small));
    ASSERT_TRUE(newcomer.send("GET /new HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_EQ(newcomer.receive().body, "GET /new ");
    EXPECT_TRUE(oldest->is_closed_by_server());
  }
  for (auto& newcomer : newcomers) {
    ASSERT_TRUE(newcomer->send("GET /again HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_EQ(newcomer->receive().body, "GET /again ");
  }
}

// Shows that room is found on whichever of several loops it is.
TEST_F(ServerTest, AConnectionOfAnotherLoopGivesWayToo) {
  HoldingHandler holding;
  Limits limits;
  limits.connections_max = 4;
  limits.idle_max = 10 * patience;
  Server wide{4};
  const auto small = wide.listen("127.0.0.1:0", holding, limits);
  std::vector<std::unique_ptr<RawClient>> busy;
  std::vector<HoldingHandler::Held> held;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        busy.emplace_back(std::make_unique<RawClient>(small))->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    held.push_back(holding.take());
  }
  for (int i = 0; i < 8; ++i) {
    RawClient idle{small};
    ASSERT_TRUE(eventually([&] { return wide.connections() == 4; }));
    RawClient newcomer{small};
    EXPECT_TRUE(idle.is_closed_by_server());
    ASSERT_TRUE(newcomer.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    holding.take().reply({});
    EXPECT_EQ(newcomer.receive().status, 200U);
    newcomer.close();
    ASSERT_TRUE(eventually([&] { return wide.connections() == 3; }));
  }
  for (auto& one : held) one.reply({});
  for (auto& client : busy) EXPECT_EQ(client->receive().status, 200U);
}

void raise_descriptor_limit() {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GE(limit.rlim_cur, 10'500U) << "this test needs 5,000 connections, both ends in one process";
}

TEST_F(ServerTest, FiveThousandIdleConnectionsDoNotHinderAnother) {
  ASSERT_NO_FATAL_FAILURE(raise_descriptor_limit());
  Limits limits;
  limits.idle_max = limits.header_max = 10 * patience;
  const auto patient = server.listen("127.0.0.1:0", handler, limits);
  std::vector<RawClient> idle;
  for (int i = 0; i < 5000; ++i) {
    idle.emplace_back(patient);
    const bool is_begun = i % 2 == 0;
    ASSERT_TRUE(idle.back().send(is_begun ? "GET / HT" : ""));
  }
  ASSERT_TRUE(eventually([&] { return server.connections() == 5000; }));
  RawClient client{patient};
  std::vector<std::chrono::nanoseconds> rounds;
  for (int i = 0; i < 100; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"));
    ASSERT_EQ(client.receive().body, "GET /x ");
    rounds.push_back(std::chrono::steady_clock::now() - begin);
  }
  std::sort(rounds.begin(), rounds.end());
  // Connections that hinder others slow every round, a busy machine some.
  EXPECT_LT(rounds[rounds.size() / 10], 50ms);
  idle.clear();
  EXPECT_TRUE(eventually([&] { return server.connections() == 1; }));
}

// Shows that a server which ran out of descriptors serves again when there are some. How: the soft limit is
// lowered to what is open, so that the next accept fails.
TEST_F(ServerTest, RunsOutOfDescriptorsAndRecovers) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  RawClient waiting{address};
  ASSERT_TRUE(eventually([&] { return server.connections() == 1; }));
  std::optional<RawClient> last{address};
  ASSERT_TRUE(eventually([&] { return server.connections() == 2; }));
  std::vector<RawClient> more;
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_THROW(for (int i = 0; i < 100; ++i) more.emplace_back(address), std::runtime_error);
  ASSERT_TRUE(waiting.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(waiting.receive().body, "GET /x ");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (auto& client : more) {
    ASSERT_TRUE(client.send("GET /y HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_EQ(client.receive().body, "GET /y ");
  }
}

}  // namespace
}  // namespace fenceguard::http
