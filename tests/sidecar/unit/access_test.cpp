// Who may call the control side: bearer tokens with roles, hosts, origins.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "guard/error.hpp"
#include "server/control/access_tokens.hpp"
#include "server/control/host_check.hpp"
#include "tests/http/support.hpp"

namespace fenceguard {
namespace {

using testing::HasSubstr;

class TokenFile : public testing::Test {
 protected:
  void write(const std::string& content, mode_t mode = 0600) {
    std::ofstream{path_, std::ios::trunc} << content;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }

  std::string objection() {
    try {
      const AccessTokens tokens{path_};
      return "";
    } catch (const InvalidInput& error) {
      return error.what();
    }
  }

  test::TempDir folder_;
  std::string path_ = folder_.file("tokens");
};

TEST_F(TokenFile, RolesAreTold) {
  write("# who may do what\nlease  0123456789abcdef # the workers\n\nadmin fedcba9876543210\n");
  const AccessTokens tokens{path_};
  EXPECT_EQ(tokens.role_of("Bearer 0123456789abcdef"), Role::lease);
  EXPECT_EQ(tokens.role_of("bearer fedcba9876543210"), Role::admin);
  for (const char* wrong : {"Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0",
                            "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef", ""}) {
    EXPECT_FALSE(tokens.role_of(wrong)) << wrong;
  }
  EXPECT_FALSE(tokens.role_of(std::nullopt));
}

TEST_F(TokenFile, WithoutAFileEverybodyIsAdmin) {
  EXPECT_EQ(AccessTokens{}.role_of(std::nullopt), Role::admin);
}

TEST_F(TokenFile, WhatIsWrongIsSaidWithoutTheToken) {
  EXPECT_THAT(objection(), HasSubstr("cannot be read"));
  write("lease 0123456789abcdef\n", 0640);
  EXPECT_THAT(objection(), HasSubstr("chmod 600"));
  write("");
  EXPECT_THAT(objection(), HasSubstr("holds no token"));
  write("root 0123456789abcdef\n");
  EXPECT_THAT(objection(), HasSubstr("line 1"));
  write("lease short\n");
  EXPECT_THAT(objection(), HasSubstr("16 characters"));
  EXPECT_THAT(objection(), testing::Not(HasSubstr("short\n")));
  write("lease\n");
  EXPECT_THAT(objection(), HasSubstr("ROLE TOKEN"));
  write("lease 0123456789abcdef more\n");
  EXPECT_THAT(objection(), HasSubstr("ROLE TOKEN"));
  write("lease 0123456789abcde\xC3\xA9\n");
  EXPECT_THAT(objection(), HasSubstr("visible ASCII"));
  write("lease " + std::string(70'000, 'x'));
  EXPECT_THAT(objection(), HasSubstr("64 KiB"));
}

TEST_F(TokenFile, AReloadThatFailsKeepsTheOldTokens) {
  write("lease 0123456789abcdef\n");
  AccessTokens tokens{path_};
  write("nonsense\n");
  EXPECT_THROW(tokens.reload(), InvalidInput);
  EXPECT_EQ(tokens.role_of("Bearer 0123456789abcdef"), Role::lease);
  write("admin 0123456789abcdef\n");
  tokens.reload();
  EXPECT_EQ(tokens.role_of("Bearer 0123456789abcdef"), Role::admin);
}

http::Request head(const std::string& name, const std::string& value) {
  http::Request request{.method = "GET", .target = "/", .fields = {}, .body = {}};
  request.fields.add(name, value);
  return request;
}

TEST(HostCheck, OnlyOurNamesAreOurs) {
  HostCheck check{HostCheck::Side::control, {"guard.example"}};
  EXPECT_FALSE(check.is_our_host(head("Host", "localhost")));
  check.set_address("10.1.2.3:7421");
  for (const char* ours : {"localhost", "localhost:7421", "LOCALHOST:7421", "127.0.0.1:7421", "[::1]",
                           "[::1]:7421", "10.1.2.3:7421", "guard.example:7421"}) {
    EXPECT_TRUE(check.is_our_host(head("Host", ours))) << ours;
  }
  for (const char* foreign :
       {"", "evil.example", "localhost:80", "localhost:", "localhost.evil.example", "::1", "127.0.0.1:74210",
        "[::2]:7421", "localhost:7421:7421", "evil@localhost"}) {
    EXPECT_FALSE(check.is_our_host(head("Host", foreign))) << foreign;
  }
  auto twice = head("Host", "localhost");
  twice.fields.add("Host", "localhost");
  EXPECT_FALSE(check.is_our_host(twice));
  EXPECT_FALSE(check.is_our_host(head("Accept", "*/*")));
}

TEST(HostCheck, ToTheDataSideThePortDoesNotMatter) {
  HostCheck check{HostCheck::Side::data, {"guard.example"}};
  check.set_address("127.0.0.2:0");
  for (const char* ours : {"localhost", "localhost:9000", "127.0.0.1:80", "[::1]:9000", "127.0.0.2:7420",
                           "Guard.example:443", "guard.example"}) {
    EXPECT_TRUE(check.is_our_host(head("Host", ours))) << ours;
  }
  for (const char* foreign : {"", "evil.example", "evil.example:7420", "localhost.evil.example",
                              "my.guard.example", "guard_example", "127.0.0.3", "localhost."}) {
    EXPECT_FALSE(check.is_our_host(head("Host", foreign))) << foreign;
  }
  EXPECT_TRUE(check.is_our_host(head("Accept", "*/*")));
  const auto refused = check.refuse_host(head("Host", "evil.example"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 403U);
  EXPECT_NE(refused->body.find("--data-host"), std::string::npos);
}

TEST(HostCheck, OverAUnixSocketAnyHostWillDo) {
  HostCheck check{HostCheck::Side::control, {}};
  check.set_address("unix:/run/guard.sock");
  auto request = head("Host", "whatever");
  request.local_socket = true;
  EXPECT_TRUE(check.is_our_host(request));
}

TEST(HostCheck, AForeignOriginIsForeign) {
  HostCheck check{HostCheck::Side::control, {}};
  check.set_address("127.0.0.1:7421");
  EXPECT_TRUE(check.is_our_origin(head("Host", "localhost")));
  EXPECT_TRUE(check.is_our_origin(head("Origin", "http://localhost:7421")));
  for (const char* foreign : {"null", "https://localhost:7421", "http://localhost:3000", "http://localhost",
                              "http://evil.example", "http://evil.example:7421", ""}) {
    EXPECT_FALSE(check.is_our_origin(head("Origin", foreign))) << foreign;
  }
}

}  // namespace
}  // namespace fenceguard
