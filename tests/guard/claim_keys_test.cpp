// The signatures here were made with the openssl command: printf TEXT | openssl dgst -sha256 -mac HMAC
// -macopt hexkey:… -binary | basenc --base64url, without the padding.

#include "guard/claim_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "guard/error.hpp"

namespace fenceguard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

const std::string first = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";  // the bytes 0 to 31
const std::string second =                                                // the bytes 64 to 127
    "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl9gYWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1-fw";
const Claim claim{Resource{"accounts/42"}, Token{34}, Holder{"mine"}, std::nullopt};
const std::string signed_by_first = "old.l3CtS1qhjAzmXickUqfII_FGOGry61mcVQ8_7hrzwR0";

class ClaimKeysTest : public ::testing::Test {
 protected:
  ClaimKeysTest() {
    std::string name = "/tmp/fenceguard-keys-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
    folder = name;
    path = name + "/keys";
  }
  ~ClaimKeysTest() override { std::filesystem::remove_all(folder); }

  ClaimKeys keys(const std::string& text, const std::string& space = "fenceguard") {
    write(text);
    return ClaimKeys::from_file(path, space);
  }

  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream{path} << text;
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }

  std::string folder;
  std::string path;
};

TEST_F(ClaimKeysTest, SignsAsTheOpensslCommandDoes) {
  EXPECT_EQ(keys("old " + first + "\n").sign(claim), signed_by_first);
  const Claim highest{Resource{"accounts/42"}, Token{9223372036854775807}, Holder{}, std::nullopt};
  EXPECT_EQ(keys("new " + second).sign(highest), "new.t-C5132TLfikR0dGlfBENlgB7K0MnFErulLJZqeZAv0");
  const Claim accented{Resource{"été/42"}, Token{1}, Holder{"mine"}, std::nullopt};
  EXPECT_EQ(keys("old " + first, "other").sign(accented), "old.ITHYrxsR0f7S0vH7DXr5lwpp0_mXj20TU4qXxjNxyL4");
}

TEST_F(ClaimKeysTest, TheSequenceIsTheHoldersOwnAndIsNotSigned) {
  const auto keys = this->keys("old " + first);
  EXPECT_EQ(keys.sign(claim.with(Sequence{7})), signed_by_first);
  EXPECT_TRUE(keys.verify(claim.with(Sequence{8}), signed_by_first));
}

TEST_F(ClaimKeysTest, NothingButTheClaimThatWasSignedIsGood) {
  const auto keys = this->keys("old " + first);
  EXPECT_TRUE(keys.verify(claim, signed_by_first));
  const auto signature_of = [&](Claim other) { return keys.sign(other); };
  EXPECT_FALSE(keys.verify(claim, signature_of({Resource{"accounts/43"}, claim.token, claim.holder, {}})));
  EXPECT_FALSE(keys.verify(claim, signature_of({claim.resource, Token{35}, claim.holder, {}})));
  EXPECT_FALSE(keys.verify(claim, signature_of({claim.resource, claim.token, Holder{"mind"}, {}})));
  EXPECT_FALSE(keys.verify(claim, this->keys("old " + first, "other").sign(claim)));
  EXPECT_FALSE(keys.verify(claim, this->keys("old " + second).sign(claim)));
  EXPECT_FALSE(keys.verify(claim, this->keys("new " + first).sign(claim)));
}

TEST_F(ClaimKeysTest, EveryChangedByteMakesASignatureWrong) {
  const auto keys = this->keys("old " + first);
  for (std::size_t i = 0; i < signed_by_first.size(); ++i) {
    for (const char other : {'A', 'b', '.', '=', '\0'}) {
      auto wrong = signed_by_first;
      if (wrong[i] == other) continue;
      wrong[i] = other;
      EXPECT_FALSE(keys.verify(claim, wrong)) << wrong;
    }
    EXPECT_FALSE(keys.verify(claim, signed_by_first.substr(0, i)));
  }
  EXPECT_FALSE(keys.verify(claim, signed_by_first + "="));
  EXPECT_FALSE(keys.verify(claim, ""));
}

TEST_F(ClaimKeysTest, NoTwoClaimsShareAText) {
  // What moves from the end of one part to the begin of the next, and digits that look like lengths.
  const auto keys = this->keys("old " + first);
  std::set<std::string> signatures;
  const std::vector<Claim> claims{{Resource{"a"}, Token{11}, Holder{"1"}, {}},
                                  {Resource{"a"}, Token{1}, Holder{"11"}, {}},
                                  {Resource{"a1"}, Token{1}, Holder{"1"}, {}},
                                  {Resource{"a,2:11"}, Token{1}, Holder{}, {}},
                                  {Resource{"a"}, Token{11}, Holder{}, {}}};
  for (const auto& one : claims) signatures.insert(keys.sign(one));
  EXPECT_EQ(signatures.size(), claims.size());
}

TEST_F(ClaimKeysTest, KeysChangeWhileBothAreValid) {
  auto keys = this->keys("old " + first);
  write("new " + second + "\nold " + first + "\n");
  keys.reload();
  const auto fresh = keys.sign(claim);
  EXPECT_TRUE(fresh.starts_with("new."));
  EXPECT_TRUE(keys.verify(claim, fresh));
  EXPECT_TRUE(keys.verify(claim, signed_by_first));
  write("new " + second + "\n");
  keys.reload();
  EXPECT_TRUE(keys.verify(claim, fresh));
  EXPECT_FALSE(keys.verify(claim, signed_by_first));
}

TEST_F(ClaimKeysTest, OldKeysStayWhereTheFileIsBad) {
  auto keys = this->keys("old " + first);
  write("new\n");
  EXPECT_THROW(keys.reload(), InvalidInput);
  std::filesystem::remove(path);
  EXPECT_THROW(keys.reload(), InvalidInput);
  EXPECT_EQ(keys.sign(claim), signed_by_first);
}

TEST_F(ClaimKeysTest, CommentsAndEmptyLinesArePassedOver) {
  EXPECT_EQ(keys("# two keys\n\n  \r\nold\t" + first + "\r\n#end").sign(claim), signed_by_first);
}

TEST_F(ClaimKeysTest, AFileThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0601}) {
    write("old " + first, mode);
    EXPECT_THAT([&] { static_cast<void>(ClaimKeys::from_file(path, "fenceguard")); },
                ThrowsMessage<InvalidInput>(HasSubstr("chmod 600")));
  }
}

TEST_F(ClaimKeysTest, AMalformedFileIsRefusedWithItsLineAndWithoutTheKey) {
  const auto refuses = [&](const std::string& text, const std::string& why) {
    EXPECT_THAT([&] { static_cast<void>(keys(text)); },
                ThrowsMessage<InvalidInput>(
                    AllOf(HasSubstr(path), HasSubstr(why), Not(HasSubstr(first.substr(0, 8))))))
        << text;
  };
  refuses("", "no key");
  refuses("# nothing\n", "no key");
  refuses("\nold\n", "line 2");
  refuses("old " + first + " more", "line 1");
  refuses("o.d " + first, "line 1: a KEYID");
  refuses(std::string(33, 'k') + " " + first, "line 1: a KEYID");
  refuses("old " + first + "=", "line 1: a key is BASE64URL");
  refuses("old " + first.substr(0, 42) + "9", "line 1: a key is BASE64URL");  // bits that nothing encodes to
  refuses("old " + first.substr(0, 41), "line 1: a key is BASE64URL");
  refuses("old " + first.substr(0, 40), "line 1: a key has 32 to 64 bytes");
  refuses("old " + second + "AAAA", "line 1: a key has 32 to 64 bytes");
  refuses("old " + first + "\nold " + second, "line 2: this KEYID comes twice");
  refuses("a " + first + "\nb " + second + "\nc " + first, "more than two");
  refuses("old " + first + "\n" + std::string(20'000, '#'), "more than 16 KiB");
}

TEST_F(ClaimKeysTest, TheNamespaceIsVisibleAscii) {
  for (const std::string& space : {std::string{}, std::string{"a b"}, std::string(129, 'a')}) {
    EXPECT_THROW(static_cast<void>(keys("old " + first, space)), InvalidInput);
  }
}

}  // namespace
}  // namespace fenceguard
