#include "server/http/stream.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

class StreamTest : public ::testing::Test {
 protected:
  static std::string get() { return "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"; }
  // A whole answer to bytes, after which the connection was closed.
  std::string answer_to_end(std::string_view bytes) {
    RawClient client{address};
    client.send(bytes);
    return client.receive_to_end();
  }
  void expect_served() {
    RawClient client{server.listen("127.0.0.1:0", echo, {})};
    ASSERT_TRUE(client.send("GET /alive HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_EQ(client.receive().body, "GET /alive ");
  }

  EchoStreams echo;
  ScriptedStreams handler;
  Server server{2};
  std::string address = server.listen("127.0.0.1:0", handler, {});
};

TEST_F(StreamTest, AnswersOneRequestAfterAnotherOnOneConnection) {
  RawClient client{address};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(fmt::format("PUT /{} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", i)));
    EXPECT_EQ(client.receive().body, fmt::format("PUT /{} hello", i));
  }
  EXPECT_EQ(server.connections(), 1);
  EXPECT_TRUE(eventually([&] { return server.in_flight() == 0; }));
}

TEST_F(StreamTest, AnswersPipelinedRequestsInOrder) {
  RawClient client{address};
  std::string requests;
  for (int i = 0; i < 300; ++i)
    requests += fmt::format("PUT /{} HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", i);
  std::thread sender{[&] { client.send(requests); }};
  for (int i = 0; i < 300; ++i) EXPECT_EQ(client.receive().body, fmt::format("PUT /{} ab", i));
  sender.join();
}

TEST_F(StreamTest, ReadsBodiesThatComeInPiecesInEveryFraming) {
  RawClient client{address};
  for (const std::string_view bytes :
       {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n\r\nhello, world",
        "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n7\r\n, "
        "world\r\n0\r\nA: b\r\n\r\n"}) {
    for (const char c : bytes) ASSERT_TRUE(client.send({&c, 1}));
    EXPECT_EQ(client.receive().body, "PUT / hello, world");
    ASSERT_TRUE(client.send(bytes));
    EXPECT_EQ(client.receive().body, "PUT / hello, world");
  }
}

TEST_F(StreamTest, PieceIsNeverLargerThanAskedFor) {
  handler.script = [](Stream& stream) -> Task<void> {
    std::string body;
    std::size_t largest = 0;
    for (auto piece = Piece::some; piece == Piece::some;) {
      const auto before = body.size();
      piece = co_await stream.read_body(body, 7);
      largest = std::max(largest, body.size() - before);
    }
    (void)co_await stream.respond(text_response(fmt::format("{} {}", largest, body)));
  };
  RawClient client{address};
  ASSERT_TRUE(client.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\n01234567890123456789"));
  EXPECT_EQ(client.receive().body, "7 01234567890123456789");
  ASSERT_TRUE(
      client.send("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "a\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"));
  EXPECT_EQ(client.receive().body, "7 01234567890123456789");
}

TEST_F(StreamTest, ATruncatedBodyIsNotTakenAsComplete) {
  handler.script = [](Stream& stream) -> Task<void> {
    std::string body = "before";
    EXPECT_FALSE(stream.take_whole_body(body));
    EXPECT_EQ(body, "before");
    EXPECT_EQ(co_await read_all(stream, body), Piece::end);
    (void)co_await stream.respond(text_response(body));
  };
  for (const auto& [head, rest] :
       {std::pair{"Content-Length: 4\r\n\r\nab", "cd"},
        std::pair{"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\nc", "d\r\n0\r\n\r\n"}}) {
    RawClient client{address};
    ASSERT_TRUE(client.send(fmt::format("PUT / HTTP/1.1\r\nHost: h\r\n{}", head)));
    ASSERT_TRUE(eventually([&] { return server.in_flight() == 1; }));
    ASSERT_TRUE(client.send(rest));
    EXPECT_EQ(client.receive().body, "beforeabcd");
    ASSERT_TRUE(eventually([&] { return server.in_flight() == 0; }));
  }
}

TEST_F(StreamTest, SaysWhatItKnowsOfTheRequest) {
  handler.script = [](Stream& stream) -> Task<void> {
    EXPECT_EQ(stream.peer(), "127.0.0.1");
    EXPECT_FALSE(stream.is_tls());
    const auto bytes = stream.body_bytes();
    auto text = fmt::format("{} {} {}", stream.has_body(), bytes ? std::to_string(*bytes) : "chunks",
                            stream.expects_continue());
    (void)co_await stream.respond(text_response(text));
  };
  RawClient client{address};
  ASSERT_TRUE(client.send(get()));
  EXPECT_EQ(client.receive().body, "false 0 false");
  ASSERT_TRUE(client.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.receive().body, "true 3 true");
  RawClient chunked{address};
  ASSERT_TRUE(chunked.send("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"));
  EXPECT_EQ(chunked.receive().body, "true chunks false");
}

TEST_F(StreamTest, ContinueIsSaidWhenTheBodyIsReadAndOnlyThen) {
  handler.script = [](Stream& stream) -> Task<void> {
    std::string body;
    if (stream.request().target == "/read") {
      EXPECT_EQ(co_await read_all(stream, body), Piece::end);
    }
    (void)co_await stream.respond(text_response("read " + body));
  };
  const auto head = [](const char* target) {
    return fmt::format("PUT {} HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
                       target);
  };
  RawClient client{address};
  ASSERT_TRUE(client.send(head("/read")));
  EXPECT_EQ(client.receive().status, 100U);
  ASSERT_TRUE(client.send("ok"));
  EXPECT_EQ(client.receive().body, "read ok");
  ASSERT_TRUE(client.send(head("/leave")));
  const auto answer = client.receive();
  EXPECT_EQ(answer.body, "read ");
  EXPECT_EQ(answer.field("Connection"), "close");
}

TEST_F(StreamTest, UnreadBodyEndsTheConnectionAfterTheAnswerWasSeen) {
  handler.script = [](Stream& stream) -> Task<void> { (void)co_await stream.respond(text_response("no")); };
  RawClient client{address};
  const std::string body(4'000'000, 'b');
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(
      client.send(fmt::format("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.size())));
  const bool is_taken = client.send(body);
  EXPECT_EQ(client.receive().body, "no");
  EXPECT_TRUE(client.is_closed_by_server());
  // The server takes what still comes for two seconds and no longer.
  const bool is_late = std::chrono::steady_clock::now() - begin > 2s;
  EXPECT_TRUE(is_taken || is_late);
  EXPECT_TRUE(!client.was_reset() || is_late);
}

Task<void> answer_in_pieces(Stream& stream, std::optional<std::uint64_t> bytes) {
  EXPECT_TRUE(co_await stream.begin(text_response({}), bytes));
  EXPECT_TRUE(co_await stream.write("hello"));
  EXPECT_TRUE(co_await stream.write(""));
  EXPECT_TRUE(co_await stream.write(", world"));
  EXPECT_TRUE(co_await stream.finish());
}

TEST_F(StreamTest, AnswerInPiecesWithALength) {
  handler.script = [](Stream& stream) { return answer_in_pieces(stream, 12); };
  RawClient client{address};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client.send(get()));
    const auto answer = client.receive();
    EXPECT_EQ(answer.body, "hello, world");
    EXPECT_FALSE(answer.field("Transfer-Encoding"));
  }
}

TEST_F(StreamTest, AnswerInChunksAndTheConnectionGoesOn) {
  handler.script = [](Stream& stream) { return answer_in_pieces(stream, std::nullopt); };
  const auto both = answer_to_end(get() + "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string body = "\r\n\r\n5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n";
  const auto first = both.find(body);
  ASSERT_NE(first, std::string::npos) << both;
  EXPECT_NE(both.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_EQ(both.find("Content-Length"), std::string::npos);
  EXPECT_EQ(both.find(body, first + body.size()), both.size() - body.size());
}

TEST_F(StreamTest, LargeChunksAreWellFormed) {
  const std::string piece(100'000, 'p');
  handler.script = [&](Stream& stream) -> Task<void> {
    EXPECT_TRUE(co_await stream.begin(text_response({}), std::nullopt));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(co_await stream.write(piece));
    EXPECT_TRUE(co_await stream.write("end"));
    EXPECT_TRUE(co_await stream.write(piece));
    EXPECT_TRUE(co_await stream.finish());
  };
  const auto answer = answer_to_end("GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const auto chunk = fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
  const auto expected = chunk + chunk + chunk + "3\r\nend\r\n" + chunk + "0\r\n\r\n";
  EXPECT_TRUE(answer.substr(answer.find("\r\n\r\n") + 4) == expected);
}

TEST_F(StreamTest, AnswerToHttp10WithoutALengthEndsWithTheConnection) {
  handler.script = [](Stream& stream) { return answer_in_pieces(stream, std::nullopt); };
  RawClient client{address};
  ASSERT_TRUE(client.send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  const auto answer = client.receive_to_end();
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), "hello, world");
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_EQ(answer.find("Transfer-Encoding"), std::string::npos);
  EXPECT_FALSE(client.was_reset());
}

TEST_F(StreamTest, HeadHasNoBodyAndTheConnectionGoesOn) {
  handler.script = [](Stream& stream) {
    const bool has_length = stream.request().target == "/length";
    return answer_in_pieces(stream, has_length ? std::optional<std::uint64_t>{12} : std::nullopt);
  };
  RawClient client{address};
  ASSERT_TRUE(client.send("HEAD /length HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.receive(true).field("Content-Length"), "12");
  ASSERT_TRUE(client.send("HEAD /chunks HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_FALSE(client.receive(true).field("Content-Length"));
  ASSERT_TRUE(client.send("GET /length HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(client.receive().body, "hello, world");
}

TEST_F(StreamTest, StatusWithoutABodyHasNone) {
  handler.script = [](Stream& stream) -> Task<void> {
    Response head;
    head.status = 304;
    EXPECT_TRUE(co_await stream.begin(std::move(head), std::nullopt));
    EXPECT_TRUE(co_await stream.finish());
  };
  RawClient client{address};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client.send(get()));
    const auto answer = client.receive(true);
    EXPECT_EQ(answer.status, 304U);
    EXPECT_FALSE(answer.field("Transfer-Encoding"));
  }
}

TEST_F(StreamTest, EmptyPieceSendsTheHeadAlone) {
  std::atomic<bool> goes_on{false};
  handler.script = [&](Stream& stream) -> Task<void> {
    EXPECT_TRUE(co_await stream.begin(text_response({}), 4));
    EXPECT_TRUE(co_await stream.write(""));
    co_await loop_until([&] { return goes_on.load(); });
    EXPECT_TRUE(co_await stream.write("body"));
    EXPECT_TRUE(co_await stream.finish());
  };
  RawClient client{address};
  ASSERT_TRUE(client.send(get()));
  EXPECT_EQ(client.receive(true).status, 200U);
  goes_on = true;
  client.shutdown_send();
  EXPECT_EQ(client.receive_to_end(), "body");
}

// Shows that an answer which is not finished is never taken for a whole one. How: half an answer in each
// framing, left alone or thrown out of; the client must see a reset, because an orderly end is how an answer
// to HTTP/1.0 ends.
TEST_F(StreamTest, UnfinishedAnswerIsCut) {
  handler.script = [](Stream& stream) -> Task<void> {
    const auto& target = stream.request().target;
    std::optional<std::uint64_t> bytes;
    if (target.ends_with("length")) bytes = 100;
    EXPECT_TRUE(co_await stream.begin(text_response({}), bytes));
    EXPECT_TRUE(co_await stream.write("half"));
    if (target.starts_with("/throw")) throw std::runtime_error("broken");
    if (bytes) {
      EXPECT_FALSE(co_await stream.finish());
    }
  };
  for (const char* target : {"/leave-length", "/leave-chunks", "/throw-length", "/throw-chunks"}) {
    for (const char* version : {"1.0", "1.1"}) {
      RawClient client{address};
      ASSERT_TRUE(client.send(fmt::format("GET {} HTTP/{}\r\nHost: h\r\n\r\n", target, version)));
      EXPECT_EQ(client.receive_to_end().find("\r\n0\r\n\r\n"), std::string::npos);
      EXPECT_TRUE(client.was_reset()) << version << " " << target;
    }
  }
  expect_served();
}

TEST_F(StreamTest, MoreThanWasAnnouncedIsNotSent) {
  handler.script = [](Stream& stream) -> Task<void> {
    EXPECT_TRUE(co_await stream.begin(text_response({}), 4));
    EXPECT_TRUE(co_await stream.write("abc"));
    EXPECT_FALSE(co_await stream.write("de"));
  };
  RawClient client{address};
  ASSERT_TRUE(client.send(get()));
  const auto answer = client.receive_to_end();
  EXPECT_TRUE(answer.empty() || answer.substr(answer.size() - 3) == "abc") << answer;
}

TEST_F(StreamTest, SecondAnswerIsNotSent) {
  handler.script = [](Stream& stream) -> Task<void> {
    if (stream.request().target == "/begun") {
      EXPECT_TRUE(co_await stream.begin(text_response({}), 1));
      EXPECT_FALSE(co_await stream.respond(text_response("second")));
      EXPECT_TRUE(co_await stream.write("1"));
      EXPECT_TRUE(co_await stream.finish());
    } else {
      EXPECT_TRUE(co_await stream.respond(text_response("1")));
    }
    EXPECT_FALSE(co_await stream.respond(text_response("second")));
    EXPECT_FALSE(co_await stream.begin(text_response({}), 1));
    EXPECT_FALSE(co_await stream.write("2"));
    EXPECT_FALSE(co_await stream.finish());
  };
  RawClient client{address};
  for (const char* target : {"/begun", "/whole", "/begun"}) {
    ASSERT_TRUE(client.send(fmt::format("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", target)));
    EXPECT_EQ(client.receive().body, "1");
  }
}

TEST_F(StreamTest, FaultyHandlerIs500AndCostsOneConnectionOnly) {
  handler.script = [](Stream& stream) -> Task<void> {
    if (stream.request().target == "/throw") throw std::runtime_error("broken");
    if (stream.request().target == "/throw-other") throw 42;
    co_return;
  };
  for (const char* target : {"/throw", "/throw-other", "/forget"}) {
    RawClient client{address};
    ASSERT_TRUE(client.send(fmt::format("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", target)));
    EXPECT_EQ(client.receive().status, 500U) << target;
    EXPECT_TRUE(client.is_closed_by_server());
  }
  EXPECT_EQ(server.in_flight(), 0);
  expect_served();
}

TEST_F(StreamTest, BodyThatEndsEarlyIsGoneAndWhatIsNoBodyIsMalformed) {
  std::atomic<int> gone{0};
  std::atomic<int> malformed{0};
  handler.script = [&](Stream& stream) -> Task<void> {
    std::string body;
    const auto piece = co_await read_all(stream, body);
    if (piece == Piece::gone) ++gone;
    if (piece != Piece::malformed) co_return;
    ++malformed;
    (void)co_await stream.respond(stream.refused());
  };
  RawClient half{address};
  ASSERT_TRUE(half.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello"));
  half.shutdown_send();
  EXPECT_EQ(half.receive().status, 400U);
  EXPECT_EQ(gone, 1);
  RawClient odd{address};
  ASSERT_TRUE(odd.send("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"));
  EXPECT_EQ(odd.receive().status, 400U);
  EXPECT_TRUE(odd.is_closed_by_server());
  EXPECT_EQ(malformed, 1);
}

}  // namespace
}  // namespace fenceguard::http
