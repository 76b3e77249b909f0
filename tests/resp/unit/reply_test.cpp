#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/resp/wire/reply.hpp"
#include "tests/resp/unit/fake_port.hpp"

namespace fenceguard::resp::test {
namespace {

using Ending = ReplyReader::Outcome;

const std::vector<std::string> replies{
    "+OK\r\n",
    "-ERR no\r\n",
    ":-9223372036854775808\r\n",
    "$-1\r\n",
    "$0\r\n\r\n",
    "$5\r\na\r\n*b\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*2\r\n*1\r\n*0\r\n*3\r\n$1\r\nx\r\n*-1\r\n:1\r\n",
    "*1\r\n*1\r\n*1\r\n*1\r\n$-1\r\n",
};

TEST(ReplyReader, RepliesCutAtEveryByteEndWhereTheyEnd) {
  for (const auto& reply : replies) {
    for (std::size_t cut = 0; cut < reply.size(); ++cut) {
      ReplyReader reader;
      ASSERT_EQ(reader.read(reply.substr(0, cut)), Ending::part) << reply << " at " << cut;
      ASSERT_EQ(reader.read(reply + "+next\r\n"), Ending::whole) << reply << " at " << cut;
      EXPECT_EQ(reader.size(), reply.size());
    }
  }
  // One after another, a byte at a time, by one reader.
  ReplyReader reader;
  for (const auto& reply : replies) {
    for (std::size_t bytes = 0; bytes < reply.size(); ++bytes)
      ASSERT_EQ(reader.read(reply.substr(0, bytes)), Ending::part);
    ASSERT_EQ(reader.read(reply), Ending::whole);
    EXPECT_EQ(reader.size(), reply.size());
  }
}

TEST(ReplyReader, WhatIsNoReplyIsMalformed) {
  for (const auto* bytes : {"\r\n", "?x\r\n", "$x\r\n", "$\r\n", "$-2\r\n", "*-2\r\n", "*1x\r\n", "$1 \r\n",
                            "$99999999999999999999\r\n", "*1\r\n?\r\n", "%1\r\n", "_\r\n"}) {
    ReplyReader reader;
    EXPECT_EQ(reader.read(bytes), Ending::malformed) << bytes;
  }
}

TEST(TakeValue, TellsKindTextAndElements) {
  std::string_view bytes{replies[8]};
  const auto whole = take_value(bytes);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(bytes.empty());
  EXPECT_EQ(whole->elements, 2u);
  auto rest = whole->inside;
  const auto first = take_value(rest);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->bytes, "*1\r\n*0\r\n");
  const auto second = take_value(rest);
  ASSERT_TRUE(second);
  EXPECT_TRUE(rest.empty());
  auto elements = second->inside;
  EXPECT_EQ(take_value(elements)->text, "x");
  EXPECT_TRUE(take_value(elements)->is_nil);
  EXPECT_EQ(take_value(elements)->text, "1");
  EXPECT_FALSE(take_value(elements));
}

TEST(TakeValue, LeavesWhatIsNotWhole) {
  for (const auto& reply : replies) {
    for (std::size_t cut = 0; cut < reply.size(); ++cut) {
      std::string_view bytes = std::string_view{reply}.substr(0, cut);
      EXPECT_FALSE(take_value(bytes)) << reply << " at " << cut;
      EXPECT_EQ(bytes.size(), cut);
    }
  }
}

TEST(AddError, LinesOfAClientEndNoReply) {
  std::string bytes;
  add_error(bytes, "ERR 'a\r\n+OK'");
  EXPECT_EQ(bytes, "-ERR 'a  +OK'\r\n");
}

}  // namespace
}  // namespace fenceguard::resp::test
