#include "server/net/address.hpp"

#include <gtest/gtest.h>

#include "guard/error.hpp"

namespace fenceguard::net {
namespace {

TEST(Address, ReadsHostAndPort) {
  const auto address = Address::parse("127.0.0.1:7420");
  EXPECT_EQ(address.host, "127.0.0.1");
  EXPECT_EQ(address.port, 7420);
  EXPECT_FALSE(address.is_unix());
  EXPECT_EQ(address.to_string(), "127.0.0.1:7420");
}

TEST(Address, ReadsIpv6InBrackets) {
  const auto address = Address::parse("[::1]:80");
  EXPECT_EQ(address.host, "::1");
  EXPECT_EQ(address.port, 80);
  EXPECT_EQ(address.to_string(), "[::1]:80");
}

TEST(Address, ReadsUnixPath) {
  const auto address = Address::parse("unix:/run/guard.sock");
  EXPECT_TRUE(address.is_unix());
  EXPECT_EQ(address.path, "/run/guard.sock");
  EXPECT_EQ(address.to_string(), "unix:/run/guard.sock");
}

TEST(Address, RefusesWhatIsNone) {
  for (const char* text :
       {"",        ":",       "7420",    ":7420",        "host",           "host:",    "host:x",
        "host:-1", "host:+1", "host: 1", "host:65536",   "host:1x",        "::1:80",   "[::1]",
        "[::1]80", "[]:80",   "a b:80",  "user@host:80", "http://host:80", "host:80/", "unix:"}) {
    EXPECT_THROW((void)Address::parse(text), InvalidInput) << text;
  }
  EXPECT_THROW((void)Address::parse("unix:/" + std::string(200, 'x')), InvalidInput);
  EXPECT_THROW((void)Address::parse(std::string{"ho\0st:80", 8}), InvalidInput);
}

TEST(Address, ResolvesNumbersAsTheyAre) {
  EXPECT_EQ(to_string(resolve(Address::parse("192.0.2.7:99")).at(0)), "192.0.2.7:99");
  EXPECT_EQ(to_string(resolve(Address::parse("[2001:db8::1]:99")).at(0)), "[2001:db8::1]:99");
  EXPECT_EQ(to_string(resolve(Address::parse("unix:/a/b")).at(0)), "unix:/a/b");
}

TEST(Address, UnknownHostIsUnavailable) {
  EXPECT_THROW((void)resolve(Address::parse("no-such-host.invalid:1")), Unavailable);
}

TEST(Address, LoopbackIsWhatOnlyThisMachineReaches) {
  for (const char* text :
       {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/x", "localhost:1"}) {
    EXPECT_TRUE(is_loopback(text)) << text;
  }
  for (const char* text :
       {"0.0.0.0:1", "[::]:1", "192.0.2.7:1", "[2001:db8::1]:1", "[::ffff:192.0.2.7]:1", "128.0.0.1:1"}) {
    EXPECT_FALSE(is_loopback(text)) << text;
  }
}

}  // namespace
}  // namespace fenceguard::net
