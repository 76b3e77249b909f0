#include "tests/http/edge_cases.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/http/support.hpp"

namespace fenceguard::http {
namespace {

using namespace std::string_literals;

const std::string target = "/edge/case";
const std::string claim = "Fencing-Token: 7\r\nFencing-Holder: edge\r\n";
const std::string next_seen = "GET /edge/next ";
const std::string next = "GET /edge/next HTTP/1.1\r\nHost: h\r\n\r\n";

// A PUT whose header block ends with fields, and then body.
std::string put(const std::string& fields, const std::string& body = "hello") {
  return "PUT " + target + " HTTP/1.1\r\nHost: h\r\n" + claim + fields + "\r\n" + body;
}

std::string chunked(const std::string& body) {
  return put("Transfer-Encoding: chunked\r\n", body);
}

const std::string five_chunked = "5\r\nhello\r\n0\r\n\r\n";

EdgeCase seen(std::string bytes, const std::string& body = "hello") {
  return {std::move(bytes), 0, "PUT " + target + " " + body};
}

std::vector<EdgeCase> refused(std::vector<std::string> all, unsigned status = 400) {
  std::vector<EdgeCase> cases;
  for (auto& bytes : all) cases.push_back({std::move(bytes), status});
  return cases;
}

// One refused case per value of a field.
std::vector<EdgeCase> refused_values(const std::string& field, const std::vector<std::string>& values,
                                     const std::string& body) {
  std::vector<EdgeCase> cases;
  for (const auto& value : values) cases.push_back({put(field + ":" + value + "\r\n", body)});
  return cases;
}

std::vector<EdgeCase> operator+(std::vector<EdgeCase> left, std::vector<EdgeCase> right) {
  for (auto& one : right) left.push_back(std::move(one));
  return left;
}

std::vector<EdgeClass> coding_classes() {
  const std::string te = "Transfer-Encoding: chunked\r\n";
  return {
      {"ContentLengthThenTransferEncoding",
       refused({put("Content-Length: 5\r\n" + te, five_chunked),
                put("Content-Length: 0\r\n" + te, five_chunked),
                put("Content-Length: 15\r\n" + te, five_chunked),
                put("Content-Length: 5\r\nTransfer-Encoding: identity\r\n"),
                put("Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n")})},
      {"TransferEncodingThenContentLength",
       refused({put(te + "Content-Length: 5\r\n", five_chunked),
                put(te + "Content-Length: 0\r\n", five_chunked),
                put(te + "X: y\r\nContent-Length: 15\r\n", five_chunked)})},
      {"TransferEncodingThatIsNotChunked",
       refused_values("Transfer-Encoding",
                      {" xchunked", " chunkedx", " chunk", " identity", " gzip", "", " ", " \"chunked\"",
                       " 'chunked'", " chunked;q=1", " chunked\x0b",
                       " \x0b"
                       "chunked",
                       " \x0c"
                       "chunked",
                       " chunked\0"s, " chun ked", " chunked chunked", "\r chunked",
                       " \xef\xbb\xbf"
                       "chunked",
                       " chunked\x80"},
                      five_chunked)},
      {"TransferEncodingWithSeveralCodings",
       refused_values("Transfer-Encoding",
                      {" chunked, identity", " identity, chunked", " gzip, chunked", " chunked, chunked",
                       " chunked,", " ,chunked", " ,", " chunked , gzip"},
                      five_chunked)},
      {"TransferEncodingRepeated",
       refused({put(te + te, five_chunked), put(te + "Transfer-Encoding: identity\r\n", five_chunked),
                put("Transfer-Encoding: identity\r\n" + te, five_chunked),
                put(te + "Transfer-encoding: cow\r\n", five_chunked),
                put(te + "Transfer-Encoding:\r\n", five_chunked)})},
      {"TransferEncodingWithAnOddName",
       refused({put("Transfer-Encoding : chunked\r\n", five_chunked),
                put("Transfer-Encoding\t: chunked\r\n", five_chunked),
                put("Transfer-Encoding\x0b: chunked\r\n", five_chunked),
                put("Transfer-Encoding\0: chunked\r\n"s, five_chunked),
                put("\x0bTransfer-Encoding: chunked\r\n", five_chunked),
                put("Transfer Encoding: chunked\r\n", five_chunked), put("X: y\n" + te, five_chunked),
                put("X: y\r" + te, five_chunked), put("X: y\r\n\t" + te, five_chunked),
                put("X: y\r\n " + te, five_chunked),
                put("X\r\nTransfer-Encoding: chunked\r\n", five_chunked)})},
      {"TransferEncodingThatOnlyLooksOdd",
       {seen(put("Transfer-Encoding:chunked\r\n", five_chunked)),
        seen(put("Transfer-Encoding:\tchunked \t\r\n", five_chunked)),
        seen(put("transfer-ENCODING: CHUNKED\r\n", five_chunked)),
        seen(put("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n")),
        seen(put("X-Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"))}},
      {"TransferEncodingInHttp10",
       refused(
           {"PUT /edge/case HTTP/1.0\r\nHost: h\r\n" + claim + te + "\r\n" + five_chunked,
            "PUT /edge/case HTTP/1.0\r\n" + claim + te + "Connection: keep-alive\r\n\r\n" + five_chunked})},
  };
}

std::vector<EdgeClass> length_classes() {
  return {
      {"ContentLengthThatIsNoNumber", refused_values("Content-Length",
                                                     {" +5",
                                                      " -5",
                                                      " -0",
                                                      " 0x5",
                                                      " 5 5",
                                                      " 5,5",
                                                      " 5, 5",
                                                      " 5,",
                                                      "",
                                                      " ",
                                                      " 5a",
                                                      " a5",
                                                      " 1e1",
                                                      " 5.0",
                                                      " \"5\"",
                                                      " 5;",
                                                      " 5\x0b",
                                                      " \x0b"
                                                      "5",
                                                      " 5\0"s,
                                                      " \xd9\xa5",
                                                      " five",
                                                      " 18446744073709551616",
                                                      " 18446744073709551621",
                                                      " 340282366920938463463374607431768211461"},
                                                     "hello")},
      {"ContentLengthRepeated", refused({put("Content-Length: 5\r\nContent-Length: 5\r\n"),
                                         put("Content-Length: 5\r\nContent-Length: 6\r\n"),
                                         put("Content-Length: 0\r\nContent-Length: 5\r\n"),
                                         put("Content-Length: 5\r\ncontent-length: 0\r\n"),
                                         put("Content-Length: 5\r\nX: y\r\nContent-Length:\r\n")})},
      {"ContentLengthWithAnOddName",
       refused({put("Content-Length : 5\r\n"), put("Content-Length\t: 5\r\n"),
                put("Content-Length\x0b: 5\r\n"), put("Content Length: 5\r\n"),
                put("\tContent-Length: 5\r\n"), put("X: y\nContent-Length: 5\r\n"),
                put("X: y\r\n Content-Length: 5\r\n"), put("X: y\rContent-Length: 5\r\n")})},
      {"ContentLengthThatOnlyLooksOdd",
       {seen(put("Content-Length:5\r\n")), seen(put("Content-Length: \t5\t \r\n")),
        seen(put("CONTENT-length: 005\r\n")), seen(put("Content-Length: 0\r\n", ""), ""),
        seen(put("Content_Length: 5\r\n", ""), ""), seen(put("X-Content-Length: 5\r\n", ""), "")}},
      {"ContentLengthBeyondTheLimit", refused({put("Content-Length: 9223372036854775807\r\n"),
                                               put("Content-Length: 18446744073709551615\r\n")},
                                              413)},
      {"BodyWithGet",
       {{"GET /edge/case HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", 0, "GET /edge/case hello"},
        {"GET /edge/case HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + five_chunked, 0,
         "GET /edge/case hello"},
        {"GET /edge/case HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(next.size()) + "\r\n\r\n" +
             next,
         0, "GET /edge/case " + next}}},
  };
}

std::vector<EdgeClass> chunk_classes() {
  return {
      {"ChunkSizeThatIsNoNumber",
       refused({chunked("0x5\r\nhello\r\n0\r\n\r\n"), chunked("+5\r\nhello\r\n0\r\n\r\n"),
                chunked("-5\r\nhello\r\n0\r\n\r\n"), chunked(" 5\r\nhello\r\n0\r\n\r\n"),
                chunked("\t5\r\nhello\r\n0\r\n\r\n"), chunked("5 \r\nhello\r\n0\r\n\r\n"),
                chunked("5\t\r\nhello\r\n0\r\n\r\n"), chunked("5 ;a=b\r\nhello\r\n0\r\n\r\n"),
                chunked("\r\nhello\r\n0\r\n\r\n"), chunked(";a=b\r\nhello\r\n0\r\n\r\n"),
                chunked("5,5\r\nhello\r\n0\r\n\r\n"), chunked("5\0\r\nhello\r\n0\r\n\r\n"s),
                chunked("5g\r\nhello\r\n0\r\n\r\n"), chunked("g\r\nhello\r\n0\r\n\r\n"),
                chunked("5\x0b\r\nhello\r\n0\r\n\r\n"), chunked("0X5\r\nhello\r\n0\r\n\r\n"),
                chunked("-0\r\n\r\n"), chunked("5\r\nhello\r\n0x0\r\n\r\n"),
                chunked("5\r\nhello\r\n-0\r\n\r\n")})},
      {"ChunkSizeThatOverflows", refused({chunked("10000000000000005\r\nhello\r\n0\r\n\r\n"),
                                          chunked("ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
                                          chunked("fffffffffffffffffffffffff5\r\nhello\r\n0\r\n\r\n"),
                                          chunked("5\r\nhello\r\nfffffffffffffffb\r\nx\r\n0\r\n\r\n")},
                                         413)},
      {"ChunkLineEndsOddly",
       refused({chunked("5\nhello\r\n0\r\n\r\n"), chunked("5\rhello\r\n0\r\n\r\n"),
                chunked("5\r\nhello\n0\r\n\r\n"), chunked("5\r\nhello0\r\n\r\n"),
                chunked("5\r\nhello\r0\r\n\r\n"), chunked("5\r\r\nhello\r\n0\r\n\r\n"),
                chunked("5\r\nhello\r\r\n0\r\n\r\n"), chunked("5\r\nhello\r\n0\n\r\n"),
                chunked("5\r\nhello\r\n0\n\n"), chunked("5\r\nhello\r\n0\r\n\n"),
                chunked("5\r\nhello\r\n0\r\n\r\r\n"), chunked("5\r\nhelloxx0\r\n\r\n"),
                chunked("5\r\nhello, world\r\n0\r\n\r\n"), chunked("5\n\nhello\r\n0\r\n\r\n")})},
      {"ChunkExtensionWithABareCarriageReturnOrLineFeed",
       refused({chunked("5;a\rb\r\nhello\r\n0\r\n\r\n"), chunked("5;a\nb\r\nhello\r\n0\r\n\r\n"),
                chunked("5;\nhello\r\n0\r\n\r\n"), chunked("5;a=\"\r\"\r\nhello\r\n0\r\n\r\n"),
                chunked("5;a\0\r\nhello\r\n0\r\n\r\n"s), chunked("0;\n\r\n"),
                chunked("5;a\x01\r\nhello\r\n0\r\n\r\n")})},
      {"ChunkExtensionIsReadOver",
       {seen(chunked("5;a=b\r\nhello\r\n0;c=\"d\"\r\n\r\n")), seen(chunked("5;a; b\r\nhello\r\n0\r\n\r\n")),
        seen(chunked("05\r\nhello\r\n000\r\n\r\n")),
        seen(chunked("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"), "01234567890123456789")}},
      {"ChunkTrailersAreReadOver",
       {seen(chunked("5\r\nhello\r\n0\r\nX: y\r\n\r\n")),
        seen(chunked("5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n")),
        seen(chunked("5\r\nhello\r\n0\r\nTransfer-Encoding: identity\r\nHost: other\r\n\r\n")),
        seen(chunked("5\r\nhello\r\n0\r\nFencing-Token: 9999\r\n\r\n"))}},
      {"ChunkTrailersThatAreMalformed",
       refused({chunked("0\r\nX\r\n\r\n"), chunked("0\r\nX : y\r\n\r\n"), chunked("0\r\n: y\r\n\r\n"),
                chunked("0\r\nX: y\n\r\n"), chunked("0\r\nX: y\r\n folded\r\n\r\n"),
                chunked("0\r\nX: \ry\r\n\r\n"), chunked("0\r\nX: \0\r\n\r\n"s),
                chunked("0\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"),
                chunked("0\r\nX: " + std::string(5000, 'y') + "\r\n\r\n")})},
  };
}

std::vector<EdgeClass> line_classes() {
  const auto get = [](const std::string& fields) {
    return "GET /edge/case HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n";
  };
  return {
      {"BareLineFeed",
       refused({"GET /edge/case HTTP/1.1\nHost: h\n\n", "GET /edge/case HTTP/1.1\r\nHost: h\n\r\n",
                "GET /edge/case HTTP/1.1\nHost: h\r\n\r\n", "GET /edge/case HTTP/1.1\r\nHost: h\r\n\n",
                get("A: b\nC: d\r\n"), "\nGET /edge/case HTTP/1.1\r\nHost: h\r\n\r\n"})},
      {"BareCarriageReturn",
       refused({"GET /edge/case HTTP/1.1\rHost: h\r\r", "GET /edge/case\r HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET /edge\r/case HTTP/1.1\r\nHost: h\r\n\r\n", "GET\r/edge/case HTTP/1.1\r\nHost: h\r\n\r\n",
                get("A: b\rC: d\r\n"), get("A: b\r\r\n"), get("\rA: b\r\n"), get("A\r: b\r\n"),
                "GET /edge/case HTTP/1.1\r\nHost: h\r\n\r\r\n",
                "\rGET /edge/case HTTP/1.1\r\nHost: h\r\n\r\n"})},
      {"SpaceBeforeTheColon", refused({get("A : b\r\n"), get("A\t: b\r\n"), get("A \t: b\r\n"),
                                       "GET /edge/case HTTP/1.1\r\nHost : h\r\n\r\n"})},
      {"FoldedLine", refused({get("A: b\r\n c\r\n"), get("A: b\r\n\tc\r\n"), get("A: b\r\n \r\n"),
                              get("A:\r\n b\r\n"), "GET /edge/case HTTP/1.1\r\n Host: h\r\nA: b\r\n\r\n",
                              "GET /edge/case HTTP/1.1\r\n\tHost: h\r\n\r\n"})},
      {"Nul", refused({"GET /edge\0 HTTP/1.1\r\nHost: h\r\n\r\n"s, "G\0ET /edge HTTP/1.1\r\nHost: h\r\n\r\n"s,
                       get("A\0: b\r\n"s), get("A: \0\r\n"s), get("A: b\0c\r\n"s), "\0"s + get(""),
                       "GET /edge/case HTTP/1.1\0\r\nHost: h\r\n\r\n"s})},
      {"ControlCharacters",
       refused({get("A: \x01\r\n"), get("A: b\x7f\r\n"), get("A\x01: b\r\n"), get("A: \x1b[2J\r\n"),
                "GET /edge\x01 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /edge\x7f HTTP/1.1\r\nHost: h\r\n\r\n",
                get("A: \x0b\r\n"), get("A: b\x08\r\n")})},
      {"FieldWithoutAProperName",
       refused({get(": b\r\n"), get("A\r\n"), get("A b: c\r\n"), get("A(: c\r\n"), get("\xc3\xa4: c\r\n"),
                get("\"A\": c\r\n"), get("A,B: c\r\n"), get("{A}: c\r\n")})},
      {"OddSpaceInTheRequestLine",
       refused({"GET  /edge/case HTTP/1.1\r\nHost: h\r\n\r\n", "GET /edge/case  HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET\t/edge/case HTTP/1.1\r\nHost: h\r\n\r\n", "GET /edge/case\tHTTP/1.1\r\nHost: h\r\n\r\n",
                "GET /edge/case HTTP/1.1 \r\nHost: h\r\n\r\n", " GET /edge/case HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET /edge /case HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET /edge/case\x0b HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET /edge/case HTTP/ 1.1\r\nHost: h\r\n\r\n", "GET/edge/case HTTP/1.1\r\nHost: h\r\n\r\n"})},
      {"UnknownVersion",
       refused({"GET /edge/case\r\n", "GET /edge/case\r\n\r\n", "GET /edge/case HTTP/0.9\r\nHost: h\r\n\r\n",
                "GET /edge/case HTTP/1.2\r\nHost: h\r\n\r\n", "GET /edge/case HTTP/2.0\r\nHost: h\r\n\r\n",
                "GET /edge/case HTTP/2\r\nHost: h\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                "GET /edge/case http/1.1\r\nHost: h\r\n\r\n", "GET /edge/case HTTP/1.10\r\nHost: h\r\n\r\n",
                "GET /edge/case HTTP/1\r\nHost: h\r\n\r\n", "GET /edge/case HTTP/1,1\r\nHost: h\r\n\r\n",
                "GET /edge/case HTTP/01.1\r\nHost: h\r\n\r\n", "GET /edge/case HTTPS/1.1\r\nHost: h\r\n\r\n",
                "GET /edge/case ICAP/1.0\r\nHost: h\r\n\r\n", "GET /edge/case HTTP/-1.1\r\nHost: h\r\n\r\n",
                "GET /edge/case \r\nHost: h\r\n\r\n"})},
      {"EmptyLineBeforeARequest", refused({"\r\n\r\nGET /edge/case HTTP/1.1\r\nHost: h\r\n\r\n"}) +
                                      std::vector<EdgeCase>{{"\r\n" + get(""), 0, "GET /edge/case "}}},
  };
}

std::vector<EdgeClass> meaning_classes() {
  const auto host = [](const std::string& fields) { return "GET /edge/case HTTP/1.1\r\n" + fields + "\r\n"; };
  const auto expect = [](const std::string& value) {
    return put("Content-Length: 5\r\nExpect: " + value + "\r\n");
  };
  return {
      {"AbsoluteForm",
       refused({"GET http://h/edge/case HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET http://other/edge/case HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET https://h/edge/case HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET HTTP://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET file:///etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET h/edge/case HTTP/1.1\r\nHost: h\r\n\r\n", "GET @h/edge/case HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET ?x HTTP/1.1\r\nHost: h\r\n\r\n", "GET \\edge HTTP/1.1\r\nHost: h\r\n\r\n"})},
      {"OtherFormsOfTheTarget",
       refused({"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
                "GET * HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT http://h/ HTTP/1.1\r\nHost: h\r\n\r\n"})},
      {"HostMissingOrRepeated", refused({host(""), host("X-Host: h\r\n"), host("Host: h\r\nHost: h\r\n"),
                                         host("Host: h\r\nhost: other\r\n"), host("Host:\r\nHost: h\r\n"),
                                         "GET /edge/case HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n"})},
      {"HostThatIsNone",
       refused({host("Host:\r\n"),          host("Host: \r\n"),       host("Host: a b\r\n"),
                host("Host: h, other\r\n"), host("Host: h/path\r\n"), host("Host: user@h\r\n"),
                host("Host: h?x\r\n"),      host("Host: h#x\r\n"),    host("Host: h\\x\r\n"),
                host("Host: h\tother\r\n"), host("Host: \x0bh\r\n"),  host("Host: h:80:90\r\n"),
                host("Host: h:eighty\r\n"), host("Host: h:-1\r\n"),   host("Host: [::1\r\n"),
                host("Host: ::1\r\n"),      host("Host: [::1]x\r\n"), host("Host: <h>\r\n"),
                host("Host: \"h\"\r\n"),    host("Host: :80\r\n"),    host("Host: h\xff\r\n")})},
      {"HostThatIsOne",
       {{host("Host: h:80\r\n"), 0, "GET /edge/case "},
        {host("Host: [::1]:80\r\n"), 0, "GET /edge/case "},
        {host("Host: [::1]\r\n"), 0, "GET /edge/case "},
        {host("Host: a-b_c.example:\r\n"), 0, "GET /edge/case "},
        {host("hOST:\t127.0.0.1\r\n"), 0, "GET /edge/case "}}},
      {"ExpectationThatIsNotMet",
       refused({expect("200-ok"), expect("100-continue, 200-ok"), expect(""), expect("100-continue;x"),
                expect("100 continue"), expect("100-continue\r\nExpect: 100-continue"),
                expect("100-continue\r\nExpect: x")},
               417)},
      {"MethodThatIsNone",
       refused(
           {"/edge/case HTTP/1.1\r\nHost: h\r\n\r\n", "G(T /edge/case HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET, /edge/case HTTP/1.1\r\nHost: h\r\n\r\n", "\"GET\" /edge/case HTTP/1.1\r\nHost: h\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s, "\x80 /edge/case HTTP/1.1\r\nHost: h\r\n\r\n"})},
  };
}

std::string receive_all(RawClient& client) {
  client.shutdown_send();
  return client.receive_to_end();
}

}  // namespace

const std::vector<EdgeClass>& edge_classes() {
  static const auto classes = [] {
    auto all = coding_classes();
    for (auto part : {length_classes(), chunk_classes(), line_classes(), meaning_classes()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return classes;
}

void expect_edge(const EdgeCase& edge_case, const std::string& address, const TakeSeen& take_seen) {
  SCOPED_TRACE("sent: " + edge_case.bytes);
  RawClient client{address};
  ASSERT_TRUE(client.send(edge_case.bytes + next));
  const auto first = client.receive();
  if (edge_case.seen) {
    EXPECT_EQ(first.status, 200U);
    const auto second = client.receive();
    EXPECT_EQ(second.status, 200U);
    EXPECT_EQ(receive_all(client), "");
    EXPECT_EQ(take_seen(), (std::vector<std::string>{*edge_case.seen, next_seen}));
  } else {
    EXPECT_EQ(first.status, edge_case.status);
    EXPECT_EQ(first.field("Connection"), "close");
    EXPECT_EQ(receive_all(client), "");
    EXPECT_FALSE(client.was_reset());
    EXPECT_EQ(take_seen(), std::vector<std::string>{});
  }
}

}  // namespace fenceguard::http
