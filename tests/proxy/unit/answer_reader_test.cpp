#include "server/proxy/upstream/response_parser.hpp"

#include <gtest/gtest.h>

#include "server/http/wire/request_reader.hpp"

namespace fenceguard::proxy {
namespace {

std::optional<ResponseHead> read(const std::string& block) {
  http::HeadScanner scanner;
  if (scanner.scan(block) != http::HeadScanner::State::complete) return std::nullopt;
  return read_answer_head(block);
}

std::optional<ResponseHead> with_fields(const std::string& fields,
                                        const std::string& line = "HTTP/1.1 200 OK") {
  static std::string block;
  block = line + "\r\n" + fields + "\r\n";
  return read(block);
}

TEST(AnswerReaderTest, AnOrdinaryHeadIsReadWhole) {
  const auto head = with_fields(
      "Server: x\r\nContent-Length:5  \r\nConnection: a, Close\r\nKeep-Alive: timeout=7, "
      "max=9\r\nEmpty:\r\n");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 200U);
  EXPECT_EQ(head->fields.size(), 5U);
  EXPECT_EQ(head->fields[1].value, "5");
  EXPECT_EQ(head->body_bytes, 5U);
  EXPECT_TRUE(head->connection.closes());
  EXPECT_TRUE(head->connection.lists("A"));
  EXPECT_EQ(head->idle_max, std::chrono::seconds{7});
}

TEST(AnswerReaderTest, OnlyTheExactNameOfAFramingFieldIsObeyed) {
  const auto head = with_fields(
      "Transfer_Encoding: gzip\r\nContent_Length: x\r\nContent.Length: y\r\nTransfer~Encoding: gzip\r\n"
      "content-length: 5\r\nKeep_Alive: timeout=1\r\nKeep-Alive: timeout.1\r\n");
  ASSERT_TRUE(head);
  EXPECT_FALSE(head->is_chunked);
  EXPECT_EQ(head->body_bytes, 5U);
  EXPECT_FALSE(head->idle_max);
}

TEST(AnswerReaderTest, StatusLinesThatAreNoneAreOdd) {
  for (const auto* good : {"HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.0 404 Not Found", "HTTP/1.1 207 Multi"})
    EXPECT_TRUE(with_fields("", good)) << good;
  for (const auto* odd :
       {"HTTP/1.1 99 x", "HTTP/1.1 600 x", "HTTP/1.1 2000 x", "HTTP/1.1 20 x", "HTTP/2.0 200 OK",
        "HTTP/1.1  200 OK", "HTTP/1.1 +20 OK", "http/1.1 200 OK", "ICY 200 OK", "HTTP/1.1 200\tOK",
        "HTTP/1.1 200x", "HTTP/1.1 101 Switching Protocols", ""})
    EXPECT_FALSE(with_fields("", odd)) << odd;
}

TEST(AnswerReaderTest, FieldsThatTwoReadersUnderstandDifferentlyAreOdd) {
  for (const auto* odd : {"Name : x\r\n",
                          " Name: x\r\n",
                          "A: b\r\n folded\r\n",
                          "Name\r\n",
                          ": x\r\n",
                          "Na me: x\r\n",
                          "A: b\rc\r\n",
                          "A: b\nB: c\r\n",
                          "A: \x01\r\n",
                          "A: \x7F\r\n",
                          "Content-Length: 5\r\nContent-Length: 5\r\n",
                          "Content-Length: 5, 5\r\n",
                          "Content-Length: +5\r\n",
                          "Content-Length: 0x5\r\n",
                          "Content-Length: \r\n",
                          "Content-Length: 99999999999999999999\r\n",
                          "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                          "Transfer-Encoding: gzip, chunked\r\n",
                          "Transfer-Encoding: identity\r\n",
                          "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                          "Transfer-Encoding: chunked, chunked\r\n"})
    EXPECT_FALSE(with_fields(odd)) << odd;
  EXPECT_FALSE(with_fields(std::string{"A: b\0c\r\n", 8}));
}

TEST(AnswerReaderTest, ConnectionListsSixtyFourFieldsAtMost) {
  std::string most = "a";
  for (int i = 1; i < 64; ++i) most += ",a";
  EXPECT_TRUE(with_fields("Connection: " + most + "\r\n"));
  EXPECT_FALSE(with_fields("Connection: " + most + ",a\r\n"));
  EXPECT_FALSE(with_fields("Connection: " + most + "\r\nConnection: a\r\n"));
}

TEST(AnswerReaderTest, FramingWhereThereIsNoBodyIsOdd) {
  EXPECT_FALSE(with_fields("Transfer-Encoding: chunked\r\n", "HTTP/1.0 200 OK"));
  EXPECT_FALSE(with_fields("Transfer-Encoding: chunked\r\n", "HTTP/1.1 204 No Content"));
  EXPECT_FALSE(with_fields("Content-Length: 1\r\n", "HTTP/1.1 204 No Content"));
  EXPECT_TRUE(with_fields("Content-Length: 0\r\n", "HTTP/1.1 204 No Content"));
  EXPECT_FALSE(with_fields("Content-Length: 1\r\n", "HTTP/1.1 100 Continue"));
  EXPECT_TRUE(with_fields("Content-Length: 9\r\n", "HTTP/1.1 304 Not Modified"));
}

// Gives data byte by byte, as a network may.
struct Fed {
  Fed(const std::string& fields, const std::string& data, const std::string& line = "HTTP/1.1 200 OK",
      bool answers_head = false)
      : body{*with_fields(fields, line), answers_head} {
    std::string pending;
    for (const char c : data) {
      pending += c;
      pending.erase(0, body.read(pending, out));
    }
    left = pending;
  }
  ResponseBody body;
  std::string out;
  std::string left;
};

TEST(AnswerReaderTest, ABodyEndsWhereItsFramingSays) {
  const Fed sized{"Content-Length: 3\r\n", "abcHTTP"};
  EXPECT_TRUE(sized.body.is_complete());
  EXPECT_EQ(sized.out, "abc");
  EXPECT_EQ(sized.left, "HTTP");
  const Fed chunked{"Transfer-Encoding: chunked\r\n", "2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: x\r\n\r\nmore"};
  EXPECT_TRUE(chunked.body.is_complete());
  EXPECT_EQ(chunked.out, "abc");
  EXPECT_EQ(chunked.left, "more");
  EXPECT_TRUE((Fed{"Content-Length: 0\r\n", ""}.body.is_complete()));
}

TEST(AnswerReaderTest, AnEndWithinABodyIsOddUnlessNothingElseEndsIt) {
  Fed sized{"Content-Length: 3\r\n", "ab"};
  sized.body.end();
  EXPECT_TRUE(sized.body.is_odd());
  Fed chunked{"Transfer-Encoding: chunked\r\n", "2\r\nab\r\n"};
  chunked.body.end();
  EXPECT_TRUE(chunked.body.is_odd());
  Fed open{"", "ab"};
  EXPECT_FALSE(open.body.is_complete());
  open.body.end();
  EXPECT_TRUE(open.body.is_complete());
}

TEST(AnswerReaderTest, OddChunksAreOdd) {
  for (const auto* data :
       {"g\r\n", "-1\r\n", "1\nx\r\n", "1\r\nxy\r\n", " 1\r\nx\r\n", "0x1\r\nx\r\n", "11111111111111111\r\n"})
    EXPECT_TRUE((Fed{"Transfer-Encoding: chunked\r\n", data}.body.is_odd())) << data;
}

TEST(AnswerReaderTest, AnswersThatHaveNoBodyAreCompleteAtOnce) {
  EXPECT_TRUE((Fed{"Content-Length: 9\r\n", "", "HTTP/1.1 200 OK", true}.body.is_complete()));
  EXPECT_TRUE((Fed{"Transfer-Encoding: chunked\r\n", "", "HTTP/1.1 200 OK", true}.body.is_complete()));
  EXPECT_TRUE((Fed{"", "", "HTTP/1.1 204 No Content"}.body.is_complete()));
  EXPECT_TRUE((Fed{"Content-Length: 9\r\n", "", "HTTP/1.1 304 Not Modified"}.body.is_complete()));
}

}  // namespace
}  // namespace fenceguard::proxy
