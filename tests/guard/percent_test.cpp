#include "guard/support/percent.hpp"

#include <gtest/gtest.h>

namespace fenceguard {
namespace {

TEST(Percent, EveryByteIsDecoded) {
  EXPECT_EQ(percent_decode(""), "");
  EXPECT_EQ(percent_decode("plain/text"), "plain/text");
  EXPECT_EQ(percent_decode("%41%2f%2F%c3%A9"), "A//\xC3\xA9");
  EXPECT_EQ(percent_decode("a%00b"), (std::string{"a\0b", 3}));
  EXPECT_EQ(percent_decode("+"), "+");
}

TEST(Percent, IsDecodedOnce) {
  EXPECT_EQ(percent_decode("%252e"), "%2e");
}

TEST(Percent, APercentSignWithoutTwoDigitsIsRefused) {
  for (const auto* text : {"%", "%4", "a%", "a%4", "%zz", "%4z", "%z4", "%%41", "%-1", "% 1", "%u0041"}) {
    EXPECT_FALSE(percent_decode(text)) << text;
  }
}

TEST(Percent, EncodedPathsAreDecodedToThemselves) {
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte);
  const auto encoded = percent_encode_path(every_byte);
  EXPECT_EQ(percent_decode(encoded), every_byte);
  EXPECT_EQ(encoded.find_first_of(" ?#\"<>\\^`{|}"), std::string::npos);
  EXPECT_EQ(percent_encode_path("accounts/42-_.~"), "accounts/42-_.~");
  EXPECT_EQ(percent_encode_path("a b%?"), "a%20b%25%3F");
}

}  // namespace
}  // namespace fenceguard
