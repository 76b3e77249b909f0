#include "server/cli/terminal/output.hpp"

#include <gtest/gtest.h>

namespace fenceguard::cli {
namespace {

TEST(Shown, LeavesTextsAsTheyAre) {
  for (const char* text : {"", "accounts/42", "k\u00f6ln/\u732b", "\U0001F600"}) EXPECT_EQ(shown(text), text);
}

TEST(Shown, WritesOutWhatHidesOrTurnsRoundTheTextBesideIt) {
  EXPECT_EQ(shown("a\tb\u202Ec\u200B"), "a\\u{9}b\\u{202E}c\\u{200B}");
}

// The reader sees them, and nothing behind them is swallowed or read beyond the end.
TEST(Shown, WritesOutBytesThatAreNoPartOfACharacter) {
  EXPECT_EQ(shown("a\xC3"), "a\\x{C3}");
  EXPECT_EQ(shown("\xE2\x80"), "\\x{E2}\\x{80}");
  EXPECT_EQ(shown("\xF0\x9F\x98"), "\\x{F0}\\x{9F}\\x{98}");
  EXPECT_EQ(shown("\xC3\nb"), "\\x{C3}\\u{A}b");
  EXPECT_EQ(shown("\x80\xFF\xC0\xAF."), "\\x{80}\\x{FF}\\x{C0}\\x{AF}.");
}

}  // namespace
}  // namespace fenceguard::cli
