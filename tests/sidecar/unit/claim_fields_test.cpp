// The header fields of a claim: each at most once, each number in its one spelling.

#include <gtest/gtest.h>

#include "server/data/claim_fields.hpp"

namespace fenceguard {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::variant<ClaimFields, NoClaim, BadClaim> read(const Pairs& pairs) {
  http::Fields fields;
  for (const auto& [name, value] : pairs) fields.add(name, value);
  return parse_claim_fields(fields);
}

bool is_bad(const Pairs& pairs) {
  return std::holds_alternative<BadClaim>(read(pairs));
}

TEST(ClaimFields, AllThreeAreRead) {
  const auto parsed =
      read({{"Host", "h"}, {"Fencing-Token", "34"}, {"fencing-HOLDER", "me"}, {"Fencing-Sequence", "7"}});
  const auto* claim = std::get_if<ClaimFields>(&parsed);
  ASSERT_NE(claim, nullptr);
  EXPECT_EQ(claim->token, Token{34});
  EXPECT_EQ(claim->holder, Holder{"me"});
  EXPECT_EQ(claim->sequence, Sequence{7});
}

TEST(ClaimFields, HolderAndSequenceMayBeLeftOut) {
  const auto parsed = read({{"Fencing-Token", "9223372036854775807"}});
  const auto* claim = std::get_if<ClaimFields>(&parsed);
  ASSERT_NE(claim, nullptr);
  EXPECT_EQ(claim->holder, Holder{});
  EXPECT_FALSE(claim->sequence);
}

TEST(ClaimFields, NoneIsNoClaim) {
  EXPECT_TRUE(std::holds_alternative<NoClaim>(read({{"Host", "h"}})));
}

TEST(ClaimFields, ATokenHasOneSpelling) {
  for (const char* token : {"0", "-1", "+1", "01", "1e3", "0x10", " 1", "1 ", "", "9223372036854775808",
                            "1.0", "1,1", "\xD9\xA1", "one"}) {
    EXPECT_TRUE(is_bad({{"Fencing-Token", token}})) << token;
  }
  EXPECT_TRUE(is_bad({{"Fencing-Token", "1" + std::string(400, '0')}}));
}

TEST(ClaimFields, ARepeatedFieldIsBadEvenIfEqual) {
  EXPECT_TRUE(is_bad({{"Fencing-Token", "1"}, {"fencing-token", "1"}}));
  EXPECT_TRUE(is_bad({{"Fencing-Token", "1"}, {"Fencing-Holder", "a"}, {"Fencing-Holder", "a"}}));
  EXPECT_TRUE(is_bad({{"Fencing-Token", "1"}, {"Fencing-Sequence", "1"}, {"Fencing-Sequence", "1"}}));
  EXPECT_TRUE(is_bad({{"Fencing-Token", "1"}, {"Fencing-Signature", "a.b"}, {"fencing-signature", "a.b"}}));
}

TEST(ClaimFields, WhatBelongsToATokenIsBadWithoutOne) {
  EXPECT_TRUE(is_bad({{"Fencing-Holder", "a"}}));
  EXPECT_TRUE(is_bad({{"Fencing-Sequence", "1"}}));
  EXPECT_TRUE(is_bad({{"Fencing-Signature", "a.b"}}));
}

TEST(ClaimFields, AHolderIsVisibleAscii) {
  EXPECT_FALSE(is_bad({{"Fencing-Token", "1"}, {"Fencing-Holder", std::string(128, 'a')}}));
  for (const std::string& holder :
       {std::string{}, std::string{"a b"}, std::string{"\xC3\xA9"}, std::string(129, 'a')}) {
    EXPECT_TRUE(is_bad({{"Fencing-Token", "1"}, {"Fencing-Holder", holder}})) << holder;
  }
}

TEST(ClaimFields, ASequenceMayBeZeroButHasOneSpelling) {
  EXPECT_FALSE(is_bad({{"Fencing-Token", "1"}, {"Fencing-Sequence", "0"}}));
  for (const char* sequence : {"-1", "00", "07", "", "9223372036854775808"}) {
    EXPECT_TRUE(is_bad({{"Fencing-Token", "1"}, {"Fencing-Sequence", sequence}})) << sequence;
  }
}

}  // namespace
}  // namespace fenceguard
