#include "server/http/wire/request_reader.hpp"

#include <gtest/gtest.h>

namespace fenceguard::http {
namespace {

using State = HeadScanner::State;

State scan(std::string_view data) {
  return HeadScanner{}.scan(data);
}

std::optional<Rejection> refusal_of(std::string_view head, std::size_t body_bytes_max = 1000) {
  RequestReader reader{body_bytes_max};
  return reader.read_head(head);
}

unsigned status_of(const std::string& lines) {
  const auto refusal = refusal_of(lines + "\r\n");
  return refusal ? refusal->status : 0;
}

TEST(HeadScanner, FindsTheEndHoweverTheBytesArrive) {
  const std::string data = "GET / HTTP/1.1\r\nHost: h\r\n\r\nbody\r\n\r\n";
  const auto end = data.find("body");
  for (std::size_t step = 1; step < 8; ++step) {
    HeadScanner scanner;
    std::size_t seen = 0;
    auto state = State::incomplete;
    while (state == State::incomplete && seen < data.size()) {
      seen = std::min(data.size(), seen + step);
      state = scanner.scan(std::string_view{data}.substr(0, seen));
      EXPECT_EQ(state == State::complete, seen >= end) << step << " " << seen;
    }
    EXPECT_EQ(scanner.skip(), 0U);
    EXPECT_EQ(scanner.end(), end);
  }
}

TEST(HeadScanner, ForgivesOneEmptyLineBeforeTheRequest) {
  const std::string data = "\r\nGET / HTTP/1.1\r\n\r\n";
  HeadScanner scanner;
  EXPECT_EQ(scanner.scan("\r"), State::incomplete);
  EXPECT_EQ(scanner.scan("\r\n"), State::incomplete);
  EXPECT_EQ(scanner.scan(data), State::complete);
  EXPECT_EQ(scanner.skip(), 2U);
  EXPECT_EQ(scanner.end(), data.size());
  EXPECT_EQ(scan("\r\n\r\nGET"), State::malformed);
}

TEST(HeadScanner, RefusesWhatTwoReadersCouldReadDifferently) {
  EXPECT_EQ(scan("GET / HTTP/1.1\n"), State::malformed);
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\n"), State::malformed);
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\rC: d\r\n"), State::malformed);
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\r\r\n"), State::malformed);
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\r\n c\r\n"), State::malformed);
  EXPECT_EQ(scan("GET / HTTP/1.1\r\n A: b\r\n"), State::malformed);
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\r\n\tc\r\n"), State::malformed);
  EXPECT_EQ(scan(std::string_view{"GET /\0 HTTP/1.1\r\n", 17}), State::malformed);
  EXPECT_EQ(scan("\n"), State::malformed);
  EXPECT_EQ(scan(" GET"), State::malformed);
  EXPECT_EQ(scan("\x16\x03\x01"), State::malformed);
}

TEST(RequestReader, ReadsMethodTargetAndFields) {
  RequestReader reader{1000};
  ASSERT_FALSE(reader.read_head(
      "PUT /a%2fb?c=d HTTP/1.1\r\nHost: h\r\nFencing-Token:  34 \r\nContent-Length: 5\r\n\r\n"));
  auto& request = reader.request();
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.target, "/a%2fb?c=d");
  EXPECT_EQ(request.fields.single("fencing-token"), "34");
  EXPECT_EQ(reader.body_bytes(), 5U);
  EXPECT_TRUE(reader.has_body());
  EXPECT_FALSE(reader.is_chunked());
  EXPECT_TRUE(reader.wants_keep_alive());
  EXPECT_FALSE(reader.expects_continue());
}

TEST(RequestReader, RecognisesKeepAlive) {
  const auto stays = [](std::string_view head) {
    RequestReader reader{0};
    EXPECT_FALSE(reader.read_head(head)) << head;
    return reader.wants_keep_alive();
  };
  EXPECT_FALSE(stays("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(stays("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(stays("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

TEST(RequestReader, RefusesOtherVersions) {
  for (const char* version :
       {"HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "HTTP/1", "HTTP/11", "http/1.1", "HTTP/1.1 ", ""}) {
    EXPECT_EQ(status_of("GET / " + std::string{version} + "\r\nHost: h\r\n"), 400U) << version;
  }
}

TEST(RequestReader, RefusesTargetsThatAreNoPath) {
  for (const char* target : {"*", "http://h/x", "h:80", "x", "", "?a"}) {
    EXPECT_EQ(status_of("GET " + std::string{target} + " HTTP/1.1\r\nHost: h\r\n"), 400U) << target;
  }
  EXPECT_EQ(status_of("GET /a b HTTP/1.1\r\nHost: h\r\n"), 400U);
  EXPECT_EQ(status_of("GET /\t HTTP/1.1\r\nHost: h\r\n"), 400U);
  EXPECT_EQ(status_of("GET /\x7f HTTP/1.1\r\nHost: h\r\n"), 400U);
  EXPECT_EQ(status_of("G(T / HTTP/1.1\r\nHost: h\r\n"), 400U);
}

TEST(RequestReader, WantsOneHost) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n"), 400U);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: h\r\nhost: h\r\n"), 400U);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n"), 0U);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n"), 400U);
}

TEST(RequestReader, RefusesDoubtfulFraming) {
  const std::string head = "PUT / HTTP/1.1\r\nHost: h\r\n";
  for (const char* fields : {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                             "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                             "Content-Length: 5\r\nContent-Length: 5\r\n",
                             "Content-Length: 5\r\ncontent-length: 6\r\n",
                             "Content-Length: 5, 5\r\n",
                             "Content-Length: +5\r\n",
                             "Content-Length: -1\r\n",
                             "Content-Length: 0x5\r\n",
                             "Content-Length: 5 5\r\n",
                             "Content-Length: \r\n",
                             "Content-Length: 18446744073709551616\r\n",
                             "Transfer-Encoding: gzip\r\n",
                             "Transfer-Encoding: gzip, chunked\r\n",
                             "Transfer-Encoding: chunked, chunked\r\n",
                             "Transfer-Encoding: identity\r\n",
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                             "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
                             "Transfer-Encoding: \r\n",
                             "Transfer-Encoding: \x0b"
                             "chunked\r\n",
                             "Content-Length : 5\r\n",
                             ": x\r\n",
                             "A b: c\r\n",
                             "A\r\n"}) {
    EXPECT_EQ(status_of(head + fields), 400U) << fields;
  }
  EXPECT_EQ(status_of("PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n"), 400U);
  EXPECT_EQ(status_of(head + "Transfer-Encoding: Chunked\r\n"), 0U);
}

TEST(RequestReader, RefusesControlCharactersInValues) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: h\r\nA: b\x01\r\n"), 400U);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: h\r\nA: b\x7f\r\n"), 400U);
}

TEST(RequestReader, AnnouncedBodyOverTheLimitIsRefused) {
  const std::string_view head = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n";
  ASSERT_TRUE(refusal_of(head, 1000));
  EXPECT_EQ(refusal_of(head, 1000)->status, 413U);
  EXPECT_FALSE(refusal_of(head, 1001));
}

TEST(RequestReader, MeetsOneExpectationOnly) {
  const std::string head = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n";
  RequestReader reader{1000};
  ASSERT_FALSE(reader.read_head(head + "Expect: 100-Continue\r\n\r\n"));
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_EQ(status_of(head + "Expect: 200-maybe\r\n"), 417U);
  EXPECT_EQ(status_of(head + "Expect: 100-continue, x\r\n"), 417U);
}

}  // namespace
}  // namespace fenceguard::http
