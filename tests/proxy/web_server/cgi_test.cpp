// The proxy in front of a CGI program behind lighttpd, which makes an environment variable of every field
// that it is sent: what the client meant it to say must not be in one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/process/server_process.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/held_port.hpp"

namespace fenceguard::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// lighttpd on a free port; every path that ends in .cgi answers with its environment.
class CgiServer {
 public:
  CgiServer() {
    const auto program = folder_.file("env.cgi");
    std::ofstream{program} << "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\nexec env\n";
    std::filesystem::permissions(program, std::filesystem::perms{0755});
    const auto conf = folder_.file("conf");
    std::ofstream{conf} << "server.document-root = \"" + folder_.path() +
                               "\"\nserver.bind = \"127.0.0.1\"\nserver.port = " +
                               std::to_string(port_.number()) + "\nserver.modules = (\"mod_cgi\")\n" +
                               "server.errorlog = \"" + folder_.file("errors") +
                               "\"\ncgi.assign = (\".cgi\" => \"\")\n";
    server_ = std::make_unique<ServerProcess>(
        ServerProcess::Command{{"/usr/sbin/lighttpd", "-D", "-f", conf}, folder_.file("log")});
    server_->start([this] { return accepts(port_.number()); });
  }

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_.number()); }

 private:
  TempDir folder_;
  const HeldPort port_;
  std::unique_ptr<ServerProcess> server_;
};

// Each odd character for the hyphens; what the upstream must not hear is 'forged'.
Pairs forged_fields() {
  Pairs fields;
  for (const char odd : std::string{"!#$%&'*+.^_`|~"}) {
    for (const std::string known : {"X-HTTP-Method-Override", "X-Original-URL", "X-Forwarded-For",
                                    "X-Forwarded-Host", "X-Real-IP", "Fencing-Token", "Fencing-Holder"}) {
      auto name = known;
      std::replace(name.begin(), name.end(), '-', odd);
      fields.emplace_back(name, "forged");
    }
  }
  fields.emplace_back("Proxy", "forged");
  return fields;
}

// Shows that no field under an odd name is a variable that a CGI program trusts. How: the same fields once
// round the guard, where they are, and once through it.
TEST(CgiTest, NoOddlySpelledFieldReachesTheVariableOfAnother) {
  const CgiServer server;
  GuardedOptions options;
  options.lane.forward_claim = true;
  const Guarded guarded{server.url(), options};
  const auto fields = forged_fields();

  http::Request bare{"GET", "/env.cgi", {}, {}, false};
  for (const auto& [name, value] : fields) bare.fields.add(name, value);
  const auto round_it = http::Client{server.url(), http::patience}.send(bare).body;
  for (const auto* variable :
       {"HTTP_X_HTTP_METHOD_OVERRIDE=", "HTTP_FENCING_TOKEN=", "HTTP_X_FORWARDED_FOR="})
    ASSERT_THAT(round_it, HasSubstr(std::string{variable} + "forged"));

  const auto through = guarded.send("GET", "/env.cgi", claim(5, fields));
  EXPECT_EQ(through.status, 200U);
  EXPECT_THAT(through.body, AllOf(HasSubstr("HTTP_FENCING_TOKEN=5\n"), HasSubstr("HTTP_FENCING_HOLDER=h\n"),
                                  HasSubstr("HTTP_X_FORWARDED_FOR=127.0.0.1\n"), Not(HasSubstr("forged"))));
}

}  // namespace
}  // namespace fenceguard::test
