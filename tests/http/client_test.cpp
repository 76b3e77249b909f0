#include "server/http/client.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "guard/error.hpp"
#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

Request request_of(std::string method, std::string target, std::string body = {}) {
  Request request;
  request.method = std::move(method);
  request.target = std::move(target);
  request.body = std::move(body);
  return request;
}

class ClientTest : public ::testing::Test {
 protected:
  EchoHandler handler;
  HoldingHandler holding;
  Server server{1};
  std::string address = server.listen("127.0.0.1:0", handler, {});
};

TEST_F(ClientTest, SendsAndReceives) {
  Client client{"http://" + address};
  const auto answer = client.send(request_of("PUT", "/a", "body"));
  EXPECT_EQ(answer.status, 200U);
  EXPECT_EQ(answer.body, "PUT /a body");
  EXPECT_EQ(answer.fields.single("content-type"), "text/plain");
  EXPECT_EQ(client.send(request_of("GET", "/b")).body, "GET /b ");
  EXPECT_EQ(client.send(request_of("HEAD", "/b")).body, "");
  EXPECT_EQ(client.send(request_of("GET", "/c")).body, "GET /c ");
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(ClientTest, SpeaksToUnixSockets) {
  test::TempDir folder;
  const auto path = server.listen("unix:" + folder.file("s"), handler, {});
  Client client{path};
  EXPECT_EQ(client.send(request_of("GET", "/x")).body, "GET /x ");
}

TEST_F(ClientTest, SendsDefaultsAndFields) {
  Client client{"http://" + server.listen("127.0.0.1:0", holding, {})};
  client.add_default("Authorization", "Bearer x");
  auto request = request_of("POST", "/");
  request.fields.add("Fencing-Token", "34");
  std::thread answering{[&] {
    auto held = holding.take();
    EXPECT_EQ(held.request.fields.single("authorization"), "Bearer x");
    EXPECT_EQ(held.request.fields.single("fencing-token"), "34");
    EXPECT_EQ(held.request.fields.single("content-length"), "0");
    held.reply(text_response("ok"));
  }};
  EXPECT_EQ(client.send(request).body, "ok");
  answering.join();
}

TEST_F(ClientTest, MovesLargeBodies) {
  Client client{"http://" + address};
  const std::string body(5'000'000, 'b');
  EXPECT_TRUE(client.send(request_of("PUT", "/", body)).body == "PUT / " + body);
}

TEST_F(ClientTest, ReconnectsWhenTheServerHasClosed) {
  Limits limits;
  limits.idle_max = 2s;
  Client client{"http://" + server.listen("127.0.0.1:0", handler, limits)};
  EXPECT_EQ(client.send(request_of("GET", "/a")).body, "GET /a ");
  ASSERT_TRUE(eventually([&] { return server.connections() == 0; }));
  EXPECT_EQ(client.send(request_of("GET", "/b")).body, "GET /b ");
}

TEST_F(ClientTest, ReadsTheRefusalOfABodyThatIsTooLarge) {
  Limits limits;
  limits.body_bytes_max = 1000;
  Client client{"http://" + server.listen("127.0.0.1:0", handler, limits)};
  const auto answer = client.send(request_of("PUT", "/", std::string(5'000'000, 'x')));
  EXPECT_EQ(answer.status, 413U);
  EXPECT_TRUE(answer.close);
  EXPECT_EQ(client.send(request_of("GET", "/b")).body, "GET /b ");
}

TEST_F(ClientTest, NoConnectionIsUnavailable) {
  ASSERT_TRUE(server.drain(patience));
  Client client{"http://" + address};
  EXPECT_THROW((void)client.send(request_of("GET", "/")), Unavailable);
  Client unix_client{"unix:/no/such/socket"};
  EXPECT_THROW((void)unix_client.send(request_of("GET", "/")), Unavailable);
}

TEST_F(ClientTest, NoAnswerInTimeIsUnknown) {
  Client client{"http://" + server.listen("127.0.0.1:0", holding, {})};
  const auto answer_next = [&](const char* text) {
    return std::thread{[this, text] { holding.take().reply(text_response(text)); }};
  };
  // Of the time for the second request, none is spent on the connection.
  auto answering = answer_next("first");
  EXPECT_EQ(client.send(request_of("GET", "/")).body, "first");
  answering.join();
  EXPECT_THROW((void)client.send(request_of("PUT", "/", "x"), 2s), OutcomeUnknown);
  auto late = holding.take();
  answering = answer_next("third");
  EXPECT_EQ(client.send(request_of("GET", "/")).body, "third");
  answering.join();
}

TEST_F(ClientTest, ServerThatEndsWithoutAnAnswerIsUnknown) {
  Client client{"http://" + server.listen("127.0.0.1:0", holding, {})};
  std::thread cutting{[&] {
    auto held = holding.take();
    server.drain(0ms);
  }};
  EXPECT_THROW((void)client.send(request_of("PUT", "/", "x")), OutcomeUnknown);
  cutting.join();
}

TEST_F(ClientTest, MalformedServersAndRequestsAreInvalidInput) {
  for (const char* server_name :
       {"", "127.0.0.1:80", "https://h:1", "http://", "http://h", "http://h:1/path", "unix:"}) {
    EXPECT_THROW(Client{server_name}, InvalidInput) << server_name;
  }
  Client client{"http://" + address};
  EXPECT_THROW((void)client.send(request_of("GET", "")), InvalidInput);
  EXPECT_THROW((void)client.send(request_of("GET", "/a b")), InvalidInput);
  auto request = request_of("GET", "/");
  request.fields.add("A", "b\r\nC: d");
  EXPECT_THROW((void)client.send(request), InvalidInput);
}

}  // namespace
}  // namespace fenceguard::http
