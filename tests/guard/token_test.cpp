#include "guard/token.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "guard/error.hpp"

namespace fenceguard {
namespace {

constexpr std::int64_t token_max = 9223372036854775807;

std::vector<std::string> bad_numbers() {
  return {"",
          "-1",
          "+1",
          "01",
          "00",
          "1e3",
          "1E3",
          "0x10",
          " 1",
          "1 ",
          "1\n",
          "\t1",
          "1.0",
          "1,000",
          "1_000",
          "1'000",
          "1a",
          "a",
          "-",
          "-0",
          "+0",
          "NaN",
          "inf",
          "9223372036854775808",
          "9223372036854775817",
          "18446744073709551616",
          "18446744073709551617",
          "1" + std::string(400, '0'),
          std::string(100'000, '9'),
          "\xD9\xA1",      // Arabic-Indic one
          "\xEF\xBC\x91",  // full-width one
          "\xC2\xB9",      // superscript one
          "1\xD9\xA2",     // a real one before an Arabic-Indic two
          std::string{"1\0", 2},
          std::string{"\0001", 2}};
}

TEST(Token, ABadSpellingIsNoToken) {
  for (const auto& text : bad_numbers()) EXPECT_FALSE(Token::parse(text)) << text.substr(0, 40);
  EXPECT_FALSE(Token::parse("0"));
}

TEST(Sequence, ABadSpellingIsNoSequence) {
  for (const auto& text : bad_numbers()) EXPECT_FALSE(Sequence::parse(text)) << text.substr(0, 40);
}

TEST(Token, EveryPositive63BitNumberIsReadBack) {
  for (const std::int64_t value :
       {std::int64_t{1}, std::int64_t{9}, std::int64_t{10}, std::int64_t{1} << 31,
        (std::int64_t{1} << 32) - 1, std::int64_t{1} << 32, (std::int64_t{1} << 53) - 1,
        std::int64_t{1} << 53, (std::int64_t{1} << 53) + 1, token_max - 1, token_max}) {
    const auto token = Token::parse(std::to_string(value));
    ASSERT_TRUE(token) << value;
    EXPECT_EQ(token->value(), value);
    EXPECT_EQ(to_string(*token), std::to_string(value));
  }
}

TEST(Sequence, StartsAtZero) {
  EXPECT_EQ(Sequence::parse("0"), Sequence{0});
  EXPECT_EQ(Sequence::parse("9223372036854775807"), Sequence{token_max});
  EXPECT_EQ(to_string(Sequence{0}), "0");
}

TEST(Token, OnlyPositiveNumbersCanBeHeld) {
  EXPECT_THROW(Token{0}, InvalidInput);
  EXPECT_THROW(Token{-1}, InvalidInput);
  EXPECT_THROW(Token{-token_max - 1}, InvalidInput);
  EXPECT_THROW(Sequence{-1}, InvalidInput);
}

TEST(Token, ComparesAsANumber) {
  EXPECT_LT(Token{9}, Token{10});
  EXPECT_LT(Token{9007199254740992}, Token{9007199254740993});
}

}  // namespace
}  // namespace fenceguard
