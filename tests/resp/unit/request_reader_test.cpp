#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/resp/wire/request_reader.hpp"
#include "tests/resp/unit/fake_port.hpp"

namespace fenceguard::resp::test {
namespace {

using Outcome = RequestReader::Outcome;

struct Read {
  Outcome outcome = Outcome::part;
  Words words{};
  std::size_t size = 0;
  std::string error{};

  friend bool operator==(const Read&, const Read&) = default;
};

Read result_of(const RequestReader& reader, Outcome outcome) {
  Read read{.outcome = outcome};
  if (outcome == Outcome::whole) read.words.assign(reader.words().begin(), reader.words().end());
  if (outcome == Outcome::whole || outcome == Outcome::nothing) read.size = reader.size();
  if (outcome == Outcome::malformed) read.error = reader.error();
  return read;
}

Read read_at_once(const std::string& bytes, const RequestLimits& limits = {}) {
  RequestReader reader;
  const auto outcome = reader.read(bytes, limits);
  return result_of(reader, outcome);
}

Words words_of(const std::string& line) {
  const auto read = read_at_once(line + "\r\n");
  EXPECT_EQ(read.outcome, Outcome::whole) << line;
  return read.words;
}

std::string error_of(const std::string& bytes, const RequestLimits& limits = {}) {
  const auto read = read_at_once(bytes, limits);
  EXPECT_EQ(read.outcome, Outcome::malformed) << bytes;
  return read.error;
}

TEST(RequestReader, RequestsCutAtEveryByteReadAsWhole) {
  const std::vector<std::string> requests{
      request_of({"SET", "{a}:x", "70"}),
      request_of({"PING"}),
      request_of({"SET", "k", std::string{"\r\n\0$*", 5}}),
      request_of({"SET", "k", ""}),
      "set  k 'a b' \"c\\n\"\r\n",
      "ping\n",
  };
  for (const auto& request : requests) {
    const auto whole = read_at_once(request + "rest");
    ASSERT_EQ(whole.outcome, Outcome::whole) << request;
    EXPECT_EQ(whole.size, request.size());
    for (std::size_t cut = 0; cut < request.size(); ++cut) {
      RequestReader reader;
      ASSERT_EQ(reader.read(request.substr(0, cut), {}), Outcome::part) << request << " at " << cut;
      const auto outcome = reader.read(request, {});
      EXPECT_EQ(result_of(reader, outcome), whole) << request << " at " << cut;
    }
    // And a byte at a time, by a reader that has read before.
    RequestReader reader;
    ASSERT_EQ(reader.read(request_of({"A", "B"}), {}), Outcome::whole);
    for (std::size_t bytes = 0; bytes < request.size(); ++bytes)
      ASSERT_EQ(reader.read(request.substr(0, bytes), {}), Outcome::part);
    const auto outcome = reader.read(request, {});
    EXPECT_EQ(result_of(reader, outcome), whole);
  }
}

TEST(RequestReader, EmptyRequestsAskForNothing) {
  for (const auto* bytes : {"\r\n", "\n", "   \r\n", "*0\r\n", "*-1\r\n", "*-7\r\n"}) {
    const auto read = read_at_once(std::string{bytes} + "PING\r\n");
    EXPECT_EQ(read.outcome, Outcome::nothing) << bytes;
    EXPECT_EQ(read.size, std::string{bytes}.size());
  }
}

// As sdssplitargs() of Redis, whose answers these are.
TEST(RequestReader, InlineCommandsAreQuotedAsInRedis) {
  EXPECT_EQ(words_of("set a b"), (Words{"set", "a", "b"}));
  EXPECT_EQ(words_of("\t set\ta   b \t"), (Words{"set", "a", "b"}));
  EXPECT_EQ(words_of(R"(set "a b" 'c d')"), (Words{"set", "a b", "c d"}));
  EXPECT_EQ(words_of(R"(set "" '')"), (Words{"set", "", ""}));
  EXPECT_EQ(words_of(R"("\x41\x7a\xfF\n\r\t\b\a\\\"\q")"), (Words{"Az\xff\n\r\t\b\a\\\"q"}));
  EXPECT_EQ(words_of(R"("\xZZ\x4")"), (Words{"xZZx4"}));
  EXPECT_EQ(words_of(R"('a\'b\n')"), (Words{R"(a'b\n)"}));
  EXPECT_EQ(words_of(R"(a\nb)"), (Words{R"(a\nb)"}));
  EXPECT_EQ(words_of(R"(ab"cd e")"), (Words{"abcd e"}));
}

TEST(RequestReader, QuotesThatAreNotClosedOrHaveTextBehindThemAreRefused) {
  for (const auto* line :
       {R"(set "a)", R"(set 'a)", R"(set "a"b)", R"(set 'a'b)", R"(set "a\")", R"(set 'a\')"})
    EXPECT_EQ(error_of(std::string{line} + "\r\n"), "Protocol error: unbalanced quotes in request") << line;
}

TEST(RequestReader, LengthsThatAreNoneAreRefusedInTheWordsOfRedis) {
  for (const auto* count :
       {"*a", "*1a", "* 1", "*+1", "*01", "*", "*1048577", "*99999999999999999999", "*-0"})
    EXPECT_EQ(error_of(std::string{count} + "\r\n"), "Protocol error: invalid multibulk length") << count;
  for (const auto* length : {"$a", "$-1", "$01", "$", "$99999999999999999999", "$67108865"})
    EXPECT_EQ(error_of("*1\r\n" + std::string{length} + "\r\n"), "Protocol error: invalid bulk length")
        << length;
  EXPECT_EQ(error_of("*1\r\nPING\r\n"), "Protocol error: expected '$', got 'P'");
  EXPECT_EQ(error_of("*1\r\n$1\r\nab\r\n"), "Protocol error: expected the end of a line");
  const std::string long_digits(70'000, '1');
  EXPECT_EQ(error_of("*" + long_digits), "Protocol error: too big mbulk count string");
  EXPECT_EQ(error_of("*1\r\n$" + long_digits), "Protocol error: too big bulk count string");
  EXPECT_EQ(error_of(long_digits), "Protocol error: too big inline request");
}

TEST(RequestReader, LimitsAreThoseOfTheWholeRequest) {
  const RequestLimits limits{.bytes_max = 64, .words_max = 3};
  EXPECT_EQ(read_at_once(request_of({"SET", "a", "b"}), limits).outcome, Outcome::whole);
  EXPECT_EQ(error_of("*4\r\n", limits), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("a b c d\r\n", limits), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*1\r\n$65\r\n", limits), "Protocol error: invalid bulk length");
  // Each word is short enough, all of them are not.
  EXPECT_EQ(error_of("*2\r\n$40\r\n" + std::string(40, 'x') + "\r\n$40\r\n", limits),
            "Protocol error: invalid bulk length");
}

TEST(RequestReader, WordsOfInlineCommandsOutliveTheBytes) {
  RequestReader reader;
  std::string bytes = "set 'a b' c\r\n";
  ASSERT_EQ(reader.read(bytes, {}), Outcome::whole);
  EXPECT_TRUE(reader.is_inline());
  bytes.assign(bytes.size(), '?');
  EXPECT_EQ(Words(reader.words().begin(), reader.words().end()), (Words{"set", "a b", "c"}));
}

}  // namespace
}  // namespace fenceguard::resp::test
