#include "server/resp/command/claims.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "guard/error.hpp"
#include "server/resp/replies/subscriptions.hpp"
#include "tests/resp/unit/fake_port.hpp"

namespace fenceguard::resp::test {
namespace {

HeldClaimPtr claim_to(const char* resource, std::int64_t token = 1) {
  return std::make_shared<HeldClaim>(Claim{Resource{resource}, Token{token}, Holder{"h"}, {}});
}

template <class Parse>
std::string objection(const Parse& parse, const Views& words) {
  try {
    (void)parse(words);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return {};
}

TEST(Claims, AreHeldByDatabaseAndResource) {
  Claims claims;
  claims.hold(0, claim_to("b"));
  claims.hold(0, claim_to("a", 1));
  claims.hold(3, claim_to("a", 2));
  EXPECT_EQ(claims.size(), 3u);
  ASSERT_NE(claims.find(3, "a"), nullptr);
  EXPECT_EQ((*claims.find(3, "a"))->claim.token, Token{2});
  EXPECT_EQ(claims.find(1, "a"), nullptr);
  EXPECT_EQ(claims.find(0, "c"), nullptr);
  const auto listed = claims.list(0);
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0]->claim.resource.name(), "a");
  claims.hold(0, claim_to("a", 9));
  EXPECT_EQ(claims.size(), 3u);
  EXPECT_EQ((*claims.find(0, "a"))->claim.token, Token{9});
  EXPECT_FALSE(claims.drop(1, "a"));
  EXPECT_TRUE(claims.drop(0, "a"));
  EXPECT_FALSE(claims.drop(0, "a"));
  claims.drop_database(0);
  EXPECT_EQ(claims.size(), 1u);
  claims.clear();
  EXPECT_EQ(claims.size(), 0u);
  EXPECT_EQ(claims.find(3, "a"), nullptr);
}

TEST(ParseFence, TakesHolderAndSignatureOrNeither) {
  auto spoken = parse_fence(Views{"FENCE", "accounts/42", "34"});
  EXPECT_EQ(spoken.claim.resource.name(), "accounts/42");
  EXPECT_EQ(spoken.claim.token, Token{34});
  EXPECT_EQ(spoken.claim.holder.id(), "");
  EXPECT_FALSE(spoken.claim.sequence);
  spoken = parse_fence(Views{"fence", "a", "9223372036854775807", "h", "sig", "k.s"});
  EXPECT_EQ(spoken.claim.holder.id(), "h");
  EXPECT_EQ(spoken.signature, "k.s");
  spoken = parse_fence(Views{"FENCE", "a", "1", "SIG", "k.s"});
  EXPECT_EQ(spoken.claim.holder.id(), "");
  EXPECT_EQ(spoken.signature, "k.s");
  // A holder of that name is one.
  EXPECT_EQ(parse_fence(Views{"FENCE", "a", "1", "SIG"}).claim.holder.id(), "SIG");
}

TEST(ParseFence, RefusesWhatIsNoClaim) {
  const auto said = [](const Views& words) { return objection(parse_fence, words); };
  EXPECT_THAT(said({"FENCE", "a"}), testing::StartsWith("write FENCE RESOURCE TOKEN"));
  EXPECT_THAT(said({"FENCE", "a", "1", "h", "more"}), testing::StartsWith("write FENCE"));
  for (const auto* token : {"0", "-1", "01", "+1", "1 ", "", "x", "9223372036854775808", "1e3"})
    EXPECT_THAT(said({"FENCE", "a", token}), testing::StartsWith("a token is a number")) << token;
  for (const auto* resource : {"", "/a", "a/", "a//b", "a/../b", ".", "a\nb"})
    EXPECT_NE(said({"FENCE", resource, "1"}), "") << resource;
  EXPECT_NE(said({"FENCE", "a", "1", "two words"}), "");
  EXPECT_NE(said({"FENCE", "a", "1", std::string(129, 'h')}), "");
}

TEST(ParseFenced, OptionsEndWhereTheCommandBegins) {
  const Views plain{"FENCED", "a", "1", "h", "SET", "k", "v"};
  auto spoken = parse_fenced(plain);
  EXPECT_EQ(Views(spoken.command.begin(), spoken.command.end()), (Views{"SET", "k", "v"}));
  const Views with_both{"FENCED", "a", "1", "h", "SIG", "k.s", "SEQ", "0", "SET", "k", "v"};
  spoken = parse_fenced(with_both);
  EXPECT_EQ(spoken.signature, "k.s");
  EXPECT_EQ(spoken.claim.sequence, Sequence{0});
  EXPECT_EQ(spoken.command.front(), "SET");
  const Views like_options{"FENCED", "a", "1", "", "seq", "7", "DEL", "seq", "sig"};
  spoken = parse_fenced(like_options);
  EXPECT_EQ(spoken.claim.holder.id(), "");
  EXPECT_EQ(spoken.claim.sequence, Sequence{7});
  EXPECT_EQ(Views(spoken.command.begin(), spoken.command.end()), (Views{"DEL", "seq", "sig"}));
}

TEST(ParseFenced, RefusesWhatHasNoCommandOrNoSequence) {
  const auto said = [](const Views& words) { return objection(parse_fenced, words); };
  EXPECT_THAT(said({"FENCED", "a", "1", "h"}), testing::StartsWith("write FENCED"));
  for (const auto* sequence : {"-1", "x", "01", "9223372036854775808"})
    EXPECT_THAT(said({"FENCED", "a", "1", "h", "SEQ", sequence, "SET", "k", "v"}),
                testing::StartsWith("a sequence is a number"))
        << sequence;
}

TEST(Subscriptions, AreThoseThatRedisConfirmed) {
  Subscriptions subscriptions;
  EXPECT_FALSE(subscriptions.is_active());
  const Views two{"SUBSCRIBE", "a", "b"};
  subscriptions.sent(two);
  EXPECT_TRUE(subscriptions.is_active());
  subscriptions.received("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
  EXPECT_TRUE(subscriptions.is_awaiting());
  // A message in between confirms nothing.
  subscriptions.received("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
  EXPECT_TRUE(subscriptions.is_awaiting());
  subscriptions.received("*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n");
  EXPECT_FALSE(subscriptions.is_awaiting());
  EXPECT_TRUE(subscriptions.is_active());
  // A bare one is confirmed once for each channel.
  const Views all{"UNSUBSCRIBE"};
  ASSERT_TRUE(subscriptions.can_send(all));
  subscriptions.sent(all);
  EXPECT_FALSE(subscriptions.can_send(all));
  subscriptions.received("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n");
  EXPECT_TRUE(subscriptions.is_awaiting());
  subscriptions.received("*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n");
  EXPECT_FALSE(subscriptions.is_active());
}

TEST(Subscriptions, KindsAreCountedApart) {
  Subscriptions subscriptions;
  const Views pattern{"psubscribe", "a*"};
  subscriptions.sent(pattern);
  subscriptions.received("*3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:1\r\n");
  const Views channels{"UNSUBSCRIBE"};
  // Of none there is one confirmation, which names none.
  subscriptions.sent(channels);
  subscriptions.received("*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:1\r\n");
  EXPECT_FALSE(subscriptions.is_awaiting());
  EXPECT_TRUE(subscriptions.is_active());
}

TEST(Subscriptions, ARefusalEndsTheWait) {
  Subscriptions subscriptions;
  const Views words{"SUBSCRIBE", "a"};
  subscriptions.sent(words);
  subscriptions.received("-NOPERM no\r\n");
  EXPECT_FALSE(subscriptions.is_active());
}

}  // namespace
}  // namespace fenceguard::resp::test
