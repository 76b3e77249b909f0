#include "server/proxy/upstream/request_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fenceguard::proxy {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Sent {
  std::string method = "PUT";
  std::string target = "/a";
  Pairs fields{};
  Origin origin{"store:80", "", false, false};
  BodyFraming framing{true, 5};
  Client client{"192.0.2.7", false};

  [[nodiscard]] std::string head() const {
    http::Request request{method, target, {}, {}, false};
    request.fields.add("Host", "guard");
    for (const auto& [name, value] : fields) request.fields.add(name, value);
    Pairs claim{{"Fencing-Token", "34"}, {"Fencing-Holder", "h"}};
    for (const auto& [name, value] : claim) request.fields.add(name, value);
    const auto operation = std::get<Operation>(parse_operation(request, {}));
    std::string out;
    write_request_head(out, operation, request.fields, client, origin, framing);
    return out;
  }
};

TEST(RequestWriterTest, AWholeRequestIsWrittenAnew) {
  EXPECT_EQ((Sent{.fields = {{"accept", "x"}}}.head()),
            "PUT /a HTTP/1.1\r\nHost: store:80\r\naccept: x\r\nVia: 1.1 fenceguard\r\n"
            "X-Forwarded-For: 192.0.2.7\r\nX-Real-IP: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n"
            "X-Forwarded-Host: guard\r\n"
            "Forwarded: for=192.0.2.7;host=\"guard\";proto=http\r\nContent-Length: 5\r\n\r\n");
}

TEST(RequestWriterTest, DepthZeroIsSaidOnceHoweverTheClientSaidIt) {
  for (const auto& fields :
       {Pairs{}, Pairs{{"depth", "0"}}, Pairs{{"Connection", "Depth"}, {"Depth", "0"}}}) {
    const auto head = Sent{.method = "DELETE", .fields = fields, .framing = {false, 0}}.head();
    EXPECT_THAT(head,
                AllOf(HasSubstr("\r\nDepth: 0\r\n"), Not(HasSubstr("depth")), Not(HasSubstr("Overwrite"))));
  }
  const auto head = Sent{
      .method = "MOVE",
      .fields = {{"overwrite", "F"},
                 {"Destination", "/b"},
                 {"Fencing-Destination-Token", "3"},
                 {"Fencing-Destination-Holder", "h"}},
      .framing = {false,
                  0}}.head();
  EXPECT_THAT(head, AllOf(HasSubstr("\r\nDepth: 0\r\n"), HasSubstr("\r\nOverwrite: F\r\n"),
                          Not(HasSubstr("overwrite"))));
  EXPECT_THAT((Sent{.method = "PROPFIND", .fields = {{"Depth", "1"}}}.head()), HasSubstr("\r\nDepth: 1\r\n"));
}

TEST(RequestWriterTest, WhatIsForOneHopOnlyIsNotPassedOn) {
  const auto head = Sent{.fields = {{"Connection", "close, X-Mine ,keep-alive"},
                                    {"connection", "X-Other"},
                                    {"X-Mine", "1"},
                                    {"x-other", "2"},
                                    {"Keep-Alive", "timeout=5"},
                                    {"Proxy-Authorization", "p"},
                                    {"Proxy-Connection", "keep-alive"},
                                    {"TE", "trailers"},
                                    {"Trailer", "X-T"},
                                    {"Transfer-Encoding", "chunked"},
                                    {"Content-Length", "77"},
                                    {"Upgrade", "websocket"},
                                    {"HTTP2-Settings", "s"},
                                    {"Expect", "100-continue"},
                                    {"Authorization", "kept"}}}
                        .head();
  EXPECT_THAT(head, HasSubstr("\r\nAuthorization: kept\r\n"));
  for (const auto* gone : {"Connection", "X-Mine", "x-other", "Keep-Alive", "Proxy-", "TE:", "Trailer",
                           "Transfer-Encoding", "77", "Upgrade", "HTTP2", "Expect"}) {
    EXPECT_THAT(head, Not(HasSubstr(gone)));
  }
}

TEST(RequestWriterTest, AMethodOverrideIsNotPassedOnUnderAnySpelling) {
  const auto head = Sent{.fields = {{"X-HTTP-Method-Override", "DELETE"},
                                    {"x-http-method", "DELETE"},
                                    {"X-Method-Override", "DELETE"},
                                    {"X_HTTP_Method_Override", "DELETE"},
                                    {"X-HTTP_METHOD-OVERRIDE", "DELETE"},
                                    {"X.HTTP.Method.Override", "DELETE"},
                                    {"X-HTTP~Method-Override", "DELETE"}}}
                        .head();
  EXPECT_THAT(head, Not(HasSubstr("DELETE")));
}

TEST(RequestWriterTest, AnotherUrlThanWasJudgedIsNotPassedOn) {
  const auto head = Sent{.fields = {{"X-Original-URL", "/other"},
                                    {"x-rewrite-url", "/other"},
                                    {"X-Original-Method", "other"},
                                    {"X_Method", "other"},
                                    {"X-HTTP-Verb", "other"},
                                    {"X-Real-IP", "other"}}}
                        .head();
  EXPECT_THAT(head, AllOf(Not(HasSubstr("other")), HasSubstr("\r\nX-Real-IP: 192.0.2.7\r\n")));
}

TEST(RequestWriterTest, WhoComesOverAUnixSocketHasNoAddress) {
  EXPECT_THAT(Sent{.client = {"unknown"}}.head(), Not(HasSubstr("X-Real-IP")));
}

TEST(RequestWriterTest, ClaimsArePassedOnOnlyWhereThatIsAskedFor) {
  EXPECT_THAT(Sent{}.head(), Not(HasSubstr("Fencing")));
  Sent sent{.fields = {{"Fencing_Token", "99"}, {"Fencing~Token", "99"}, {"Fencing.Token", "99"}}};
  EXPECT_THAT(sent.head(), Not(HasSubstr("Fencing")));
  sent.origin.is_claim_forwarded = true;
  EXPECT_THAT(sent.head(), AllOf(HasSubstr("Fencing-Token: 34\r\n"), HasSubstr("Fencing-Holder: h\r\n"),
                                 Not(HasSubstr("99"))));
}

TEST(RequestWriterTest, WhatEarlierProxiesSaidStaysInFront) {
  const auto head = Sent{
      .fields = {{"Via", "1.0 first"},
                 {"X-Forwarded-For", "203.0.113.1"},
                 {"x-forwarded-for", "203.0.113.2"},
                 {"X-Forwarded-Proto", "https"},
                 {"X-Forwarded-Host", "fooled"},
                 {"Forwarded", "for=203.0.113.1"}},
      .client = {"2001:db8::1",
                 true}}.head();
  EXPECT_THAT(head, HasSubstr("\r\nVia: 1.0 first, 1.1 fenceguard\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nX-Forwarded-For: 203.0.113.1, 203.0.113.2, 2001:db8::1\r\n"));
  EXPECT_THAT(head, AllOf(HasSubstr("\r\nX-Forwarded-Proto: https\r\n"), Not(HasSubstr("fooled"))));
  EXPECT_THAT(head, HasSubstr("for=203.0.113.1, for=\"[2001:db8::1]\";host=\"guard\";proto=https\r\n"));
}

TEST(RequestWriterTest, TheBasePathStandsInFrontOfTargetAndDestination) {
  const auto head = Sent{
      .method = "MOVE",
      .target = "/a?x=1",
      .fields = {{"Destination", "http://guard/b"}, {"Fencing-Destination-Token", "1"}},
      .origin = {"store", "/dav", false, false},
      .framing = {}}.head();
  EXPECT_THAT(head, StartsWith("MOVE /dav/a?x=1 HTTP/1.1\r\nHost: store\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nDestination: http://store/dav/b\r\n"));
}

// The If field as it goes on.
std::string condition(const std::string& value, const Pairs& more = {}) {
  Sent sent{.fields = {{"If", value}}, .origin = {"store", "/dav", false, true}};
  sent.fields.insert(sent.fields.end(), more.begin(), more.end());
  const auto head = sent.head();
  const auto at = head.find("\r\nIf: ");
  return at == head.npos ? "none" : head.substr(at + 6, head.find("\r\n", at + 2) - at - 6);
}

TEST(RequestWriterTest, UrlsOfTheGuardInAConditionNameTheUpstream) {
  EXPECT_EQ(condition("<http://guard/a%20b/> (<urn:uuid:1>) (Not <DAV:no-lock>)"),
            "<https://store/dav/a%20b/> (<urn:uuid:1>) (Not <DAV:no-lock>)");
  EXPECT_EQ(condition("</%61?x=1>(<u:1> [W/\"a)>\"])\t<https://GUARD> ([\"(\"])"),
            "<https://store/dav/a?x=1>(<u:1> [W/\"a)>\"])\t<https://store/dav/> ([\"(\"])");
  EXPECT_EQ(condition("<http://other/a> (<u:1>) <http://guard:81/a> (<u:2>) <ftp://guard/a> (<u:3>)"),
            "<http://other/a> (<u:1>) <http://guard:81/a> (<u:2>) <ftp://guard/a> (<u:3>)");
  EXPECT_EQ(condition("(<http://guard/a>) ([\"</a>\"])"), "(<http://guard/a>) ([\"</a>\"])");
  EXPECT_EQ(condition("(<u:1>)", {{"Connection", "if"}}), "none");
}

TEST(RequestWriterTest, AnEmptyBodyIsStatedWhereTheMethodHasOne) {
  EXPECT_THAT((Sent{.framing = {}}.head()), EndsWith("Content-Length: 0\r\n\r\n"));
  EXPECT_THAT((Sent{.method = "DELETE", .framing = {}}.head()), Not(HasSubstr("Content-Length")));
  EXPECT_THAT((Sent{.framing = {true, std::nullopt}}.head()), EndsWith("Transfer-Encoding: chunked\r\n\r\n"));
}

TEST(RequestWriterTest, ABodyThatIsNotExpectedIsTheLastOfItsConnection) {
  for (const auto* method : {"GET", "DELETE"})
    EXPECT_THAT((Sent{.method = method}.head()), EndsWith("Connection: close\r\nContent-Length: 5\r\n\r\n"));
  EXPECT_THAT((Sent{.method = "SEARCH"}.head()), Not(HasSubstr("close")));
}

TEST(RequestWriterTest, ChunksFollowEachOther) {
  std::string out;
  write_chunk_line(out, 26, true);
  out += "…";
  write_chunk_line(out, 1, false);
  out += "x";
  write_chunk_line(out, 0, false);
  EXPECT_EQ(out, "1a\r\n…\r\n1\r\nx\r\n0\r\n\r\n");
  out.clear();
  write_chunk_line(out, 0, true);
  EXPECT_EQ(out, "0\r\n\r\n");
}

}  // namespace
}  // namespace fenceguard::proxy
