#include "server/http/wire/response_writer.hpp"

#include <gtest/gtest.h>

namespace fenceguard::http {
namespace {

std::string head_of(const Response& response, Framing framing) {
  framing.date = "D";
  std::string out;
  write_head(out, response, framing);
  return out;
}

TEST(ResponseWriter, WritesStatusFieldsAndLength) {
  Response response;
  response.status = 412;
  response.fields.add("Fencing-Verdict", "stale");
  response.body = "12345";
  EXPECT_EQ(
      head_of(response, {}),
      "HTTP/1.1 412 Precondition Failed\r\nDate: D\r\nFencing-Verdict: stale\r\nContent-Length: 5\r\n\r\n");
  EXPECT_TRUE(sends_body(response, {}));
}

TEST(ResponseWriter, NoContentHasNoLength) {
  for (const unsigned status : {204U, 304U}) {
    Response response;
    response.status = status;
    response.body = "ignored";
    EXPECT_EQ(head_of(response, {}).find("Content-Length"), std::string::npos);
    EXPECT_FALSE(sends_body(response, {}));
  }
}

TEST(ResponseWriter, HeadTellsTheLengthOfWhatIsNotSent) {
  const Framing framing{true, false, false, {}};
  Response response;
  response.head_length = 1234;
  EXPECT_NE(head_of(response, framing).find("Content-Length: 1234\r\n"), std::string::npos);
  response.head_length.reset();
  response.body = "12345";
  EXPECT_NE(head_of(response, framing).find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_FALSE(sends_body(response, framing));
}

TEST(ResponseWriter, SaysWhetherTheConnectionStays) {
  EXPECT_NE(head_of({}, {false, true, false, {}}).find("Connection: close\r\n"), std::string::npos);
  EXPECT_NE(head_of({}, {false, false, true, {}}).find("Connection: keep-alive\r\n"), std::string::npos);
  EXPECT_EQ(head_of({}, {}).find("Connection"), std::string::npos);
}

TEST(ResponseWriter, ValueCannotEndItsLine) {
  Response response;
  response.fields.add("A", std::string{"b\r\nEvil: yes\0", 13});
  EXPECT_NE(head_of(response, {}).find("A: b  Evil: yes \r\n"), std::string::npos);
}

TEST(ResponseWriter, DateReadsAsTheStandardWants) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
}

}  // namespace
}  // namespace fenceguard::http
