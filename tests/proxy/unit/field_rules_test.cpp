#include "server/proxy/request/field_rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "server/proxy/request/field_names.hpp"

namespace fenceguard::proxy {
namespace {

TEST(FieldRulesTest, EveryFormThatAServerAcceptsAsANameIsTreatedAsOne) {
  EXPECT_TRUE(could_pass_for("x_http.METHOD", "X-HTTP-Method"));
  EXPECT_FALSE(could_pass_for("X-HTTP-Methods", "X-HTTP-Method"));
  EXPECT_FALSE(could_pass_for("X-HTTPS-Method", "X-HTTP--Method"));
  EXPECT_TRUE(could_begin_with("fencing~token", "Fencing-"));
  EXPECT_FALSE(could_begin_with("Fenc", "Fencing-"));
}

TEST(FieldRulesTest, WhatMeansSomethingHasItsOneSpelling) {
  EXPECT_TRUE(equals_ignoring_case("content-LENGTH", "Content-Length"));
  for (const auto* other : {"Content_Length", "Content.Length", "Content~Length", "Content-Length "})
    EXPECT_FALSE(equals_ignoring_case(other, "Content-Length")) << other;
  EXPECT_FALSE(equals_ignoring_case("my_host", "my-host"));
}

// How servers make names of their own from those of fields: RFC 3875 and what is built like it (WSGI, Rack,
// Apache, nginx), lighttpd, PHP's variables, Node.
struct Reader {
  const char* server;
  char (*read)(char);
};

char lower_case(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}
bool is_alphanumeric(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

constexpr Reader readers[] = {
    {"CGI", [](char c) { return c == '-' ? '_' : lower_case(c); }},
    {"lighttpd", [](char c) { return is_alphanumeric(c) ? lower_case(c) : '_'; }},
    {"PHP", [](char c) { return c == '-' || c == '.' || c == ' ' || c == '[' ? '_' : lower_case(c); }},
    {"Node", lower_case},
};

// Every name that a client could say to say more than was judged.
constexpr const char* sensitive[] = {"Connection",
                                     "Content-Length",
                                     "Destination",
                                     "Expect",
                                     "Fencing-Destination-Holder",
                                     "Fencing-Destination-Signature",
                                     "Fencing-Destination-Token",
                                     "Fencing-Highest",
                                     "Fencing-Holder",
                                     "Fencing-Sequence",
                                     "Fencing-Signature",
                                     "Fencing-Token",
                                     "Fencing-Verdict",
                                     "Forwarded",
                                     "HTTP2-Settings",
                                     "Host",
                                     "Keep-Alive",
                                     "Proxy",
                                     "Proxy-Authenticate",
                                     "Proxy-Authorization",
                                     "Proxy-Connection",
                                     "TE",
                                     "Trailer",
                                     "Transfer-Encoding",
                                     "Upgrade",
                                     "Via",
                                     "X-Forwarded-For",
                                     "X-Forwarded-Host",
                                     "X-Forwarded-Proto",
                                     "X-HTTP-Method",
                                     "X-HTTP-Method-Override",
                                     "X-HTTP-Verb",
                                     "X-Method",
                                     "X-Method-Override",
                                     "X-Original-Method",
                                     "X-Original-URL",
                                     "X-Real-IP",
                                     "X-Rewrite-URL"};

std::string read_by(const Reader& reader, std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), reader.read);
  return name;
}

// The spellings of a name that RFC 9110 lets a client send: each character beside letters and digits for
// every hyphen, and for each hyphen alone.
std::vector<std::string> spellings(const std::string& name) {
  std::vector<std::string> all{name};
  for (const char odd : std::string{"!#$%&'*+-.^_`|~"}) {
    auto spelled = name;
    std::replace(spelled.begin(), spelled.end(), '-', odd);
    all.push_back(spelled);
    for (auto at = name.find('-'); at != std::string::npos; at = name.find('-', at + 1)) {
      spelled = name;
      spelled[at] = odd;
      all.push_back(spelled);
    }
  }
  for (auto i = all.size(); i-- > 0;) {
    auto other = all[i];
    std::transform(other.begin(), other.end(), other.begin(), lower_case);
    all.push_back(std::move(other));
  }
  return all;
}

TEST(FieldRulesTest, NoSpellingThatAServerReadsAsASensitiveNamePasses) {
  for (const auto& reader : readers) {
    for (const std::string known : sensitive) {
      for (const auto& spelled : spellings(known)) {
        if (read_by(reader, spelled) != read_by(reader, known)) continue;
        const auto what = std::string{reader.server} + " reads " + spelled + " as " + known;
        EXPECT_FALSE(passes_to_upstream(spelled, false)) << what;
        const bool is_true_claim = known.starts_with("Fencing-") && equals_ignoring_case(spelled, known);
        EXPECT_EQ(passes_to_upstream(spelled, true), is_true_claim) << what;
      }
    }
  }
}

TEST(FieldRulesTest, NamesThatNoServerTakesForAnotherPass) {
  for (const auto* name : {"Accept", "Authorization", "X.Mine", "X_Mine", "X-HTTP-Methods", "Vias", "Fenc",
                           "~Fencing-Token", "If", "If-Match", "Depth"})
    EXPECT_TRUE(passes_to_upstream(name, false)) << name;
}

TEST(FieldRulesTest, OnlyTheWordItselfClosesAConnection) {
  ConnectionOptions options;
  EXPECT_TRUE(options.add("x-mine, Close"));
  EXPECT_TRUE(options.closes());
  EXPECT_TRUE(options.lists("X.Mine"));
}

TEST(FieldRulesTest, OnlyTheGuardSpeaksOfFencesToClients) {
  EXPECT_FALSE(passes_to_client("Fencing-Verdict"));
  EXPECT_FALSE(passes_to_client("fencing-highest"));
  EXPECT_FALSE(passes_to_client("Transfer-Encoding"));
  EXPECT_FALSE(passes_to_client("Proxy-Authenticate"));
  EXPECT_TRUE(passes_to_client("ETag"));
  EXPECT_TRUE(passes_to_client("WWW-Authenticate"));
}

http::Fields one(const char* name, const char* value) {
  http::Fields fields;
  fields.add("Accept", "*");
  fields.add(name, value);
  return fields;
}

TEST(FieldRulesTest, ConnectionTakesNothingAwayThatARequestIsJudgedOrReadBy) {
  for (const auto* listed : {"Fencing-Token", "close, fencing_holder", "authorization", "HOST",
                             "Content-Length", "x ,Transfer-Encoding"})
    EXPECT_NE(objection_to(one("connection", listed)), "") << listed;
  EXPECT_EQ(objection_to(one("Connection", "close, TE, X-Host")), "");
}

TEST(FieldRulesTest, ConnectionListsSixtyFourFieldsAtMostHoweverManyTimesItComes) {
  std::string most;
  for (int i = 0; i < 64; ++i) most += "x" + std::to_string(i) + ", ,";
  EXPECT_EQ(objection_to(one("Connection", most.c_str())), "");
  EXPECT_NE(objection_to(one("Connection", (most + "close").c_str())), "");
  auto fields = one("Connection", most.c_str());
  fields.add("connection", "close");
  EXPECT_NE(objection_to(fields), "");
  ConnectionOptions options;
  EXPECT_TRUE(options.add(most));
  EXPECT_FALSE(options.add("close"));
}

TEST(FieldRulesTest, AForwardedWhoseQuoteDoesNotEndIsRefused) {
  for (const auto* odd : {"for=\"a", "for=a;host=\"b\\\"", "\"\"\""})
    EXPECT_NE(objection_to(one("Forwarded", odd)), "") << odd;
  for (const auto* fine : {"for=a", "for=\"a\";host=\"b\\\"c\"", ""})
    EXPECT_EQ(objection_to(one("forwarded", fine)), "") << fine;
}

TEST(FieldRulesTest, ElementsOfAListComeWithoutBlanks) {
  std::string seen;
  for_each_element(" a ,b,,\tc d ,", [&](std::string_view element) { seen.append(element).append("|"); });
  EXPECT_EQ(seen, "a|b|c d|");
}

}  // namespace
}  // namespace fenceguard::proxy
