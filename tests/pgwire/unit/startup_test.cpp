#include "server/postgres/relay/startup.hpp"

#include <gtest/gtest.h>

#include "guard/error.hpp"
#include "server/postgres/wire/message.hpp"

namespace fenceguard::pgwire {
namespace {

constexpr std::uint32_t version = 3 << 16;

Startup with(std::vector<std::pair<std::string, std::string>> parameters) {
  return {.kind = Startup::Kind::start, .version = version, .parameters = std::move(parameters)};
}

TEST(StartupTest, IsReadAsItWasWritten) {
  const auto bytes = with({{"user", "a"}, {"options", ""}}).encode();
  const auto read = read_startup(bytes + "rest");
  EXPECT_EQ(read.kind, Startup::Kind::start);
  EXPECT_EQ(read.size, bytes.size());
  EXPECT_EQ(read.encode(), bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    EXPECT_EQ(read_startup(bytes.substr(0, i)).kind, Startup::Kind::part) << i;
}

TEST(StartupTest, LengthsThatLieAreMalformed) {
  const auto bytes = with({{"user", "a"}}).encode();
  for (const std::uint32_t length : {0U, 4U, 7U, 10'001U, 0x7fffffffU, 0xffffffffU}) {
    std::string changed;
    add_number(changed, length);
    EXPECT_EQ(read_startup(changed + bytes.substr(4)).kind, Startup::Kind::malformed) << length;
  }
  auto cut = bytes;
  cut.back() = 'x';
  EXPECT_EQ(read_startup(cut).kind, Startup::Kind::malformed);
}

TEST(StartupTest, ClaimsAreTakenOutOfOptions) {
  auto startup = with({{"options", "-c a=1 -c fenceguard.session_claims=[{\"x\":\\ \"\\\\y\"}] --b=2"}});
  EXPECT_EQ(take_claims(startup), "[{\"x\": \"\\y\"}]");
  EXPECT_EQ(*startup.find("options"), "-c a=1  --b=2");
}

TEST(StartupTest, EverySpellingIsTakenOutAndTheLastCounts) {
  auto startup = with({{"options",
                        "-cfenceguard.session_claims=1 --Fenceguard.Session-Claims=2 -c "
                        "fenceguard.session_claims=3"}});
  EXPECT_EQ(take_claims(startup), "3");
  EXPECT_EQ(*startup.find("options"), "  ");
  startup = with({{"fenceguard.session_claims", "5"}, {"options", "-c fenceguard.session_claims=4"}});
  EXPECT_EQ(take_claims(startup), "5");
  EXPECT_EQ(startup.find("fenceguard.session_claims"), nullptr);
}

TEST(StartupTest, ClaimsAreReadAsTheDatabaseReadsThem) {
  const auto claims = read_claims(R"([{"resource": "a/1", "token": "9007199254740993", "holder": "h"},
                                      {"resource": "b", "token": 2}])");
  ASSERT_EQ(claims.size(), 2u);
  EXPECT_EQ(to_string(claims[0].claim.token), "9007199254740993");
  EXPECT_EQ(claims[1].claim.holder.id(), "");
}

TEST(StartupTest, TokenUnderWhichTheProgramBeginsIsTakenOut) {
  Startup startup;
  startup.parameters = {{"options", "-c a=b -c fenceguard.begin=34 -c c=d"}, {"user", "u"}};
  EXPECT_EQ(take_begin(startup), "34");
  EXPECT_EQ(*startup.find("options"), "-c a=b  -c c=d");
  EXPECT_EQ(take_begin(startup), std::nullopt);
  startup.parameters = {{"Fenceguard.Begin", "35"}, {"user", "u"}};
  EXPECT_EQ(take_begin(startup), "35");
  EXPECT_EQ(startup.parameters.size(), 1U);
}

TEST(StartupTest, WhatIsNoClaimIsRefused) {
  for (const auto* text :
       {"", "x", "{}", "[]", "[1]", "[{}]", R"([{"resource": "a"}])", R"([{"resource": "a", "token": "0"}])",
        R"([{"resource": "", "token": "1"}])", R"([{"resource": "a", "token": "1", "sequence": "1"}])",
        R"([{"resource": "a", "token": "1"}, {"resource": "a", "token": "2"}])",
        R"([{"resource": "a", "token": 1.5}])", R"([{"resource": "a", "token": "1", "x": 1}])"})
    EXPECT_THROW((void)read_claims(text), InvalidInput) << text;
  EXPECT_THROW((void)read_claims("[" + std::string(16'384, ' ') + "]"), InvalidInput);
}

}  // namespace
}  // namespace fenceguard::pgwire
