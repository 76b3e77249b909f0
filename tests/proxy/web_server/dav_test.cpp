// The proxy in front of the WebDAV of nginx and of Apache, as people run them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/http/tls/tls_support.hpp"
#include "tests/process/server_process.hpp"
#include "tests/proxy/guarded.hpp"
#include "tests/proxy/held_port.hpp"

namespace fenceguard::test {
namespace {

using testing::HasSubstr;

// One server on a free port that keeps its files in a folder of its own.
class DavServer {
 public:
  DavServer(const std::string& name, bool is_tls) {
    std::filesystem::create_directories(folder_.file("files"));
    std::filesystem::permissions(folder_.path(), std::filesystem::perms{0755});
    std::filesystem::permissions(folder_.file("files"), std::filesystem::perms{0777});
    const bool is_nginx = name == "nginx";
    std::ofstream{folder_.file("conf")} << (is_nginx ? nginx(is_tls) : apache());
    const auto conf = folder_.file("conf");
    server_ = std::make_unique<ServerProcess>(ServerProcess::Command{
        is_nginx
            ? std::vector<std::string>{"/usr/sbin/nginx", "-p", folder_.path(), "-c", conf, "-e", "error.log"}
            : std::vector<std::string>{"/usr/sbin/apache2", "-X", "-f", conf},
        folder_.file("log")});
    server_->start([this] { return accepts(port_.number()); });
  }

  [[nodiscard]] std::string url(const std::string& scheme = "http") const {
    return scheme + "://127.0.0.1:" + std::to_string(port_.number());
  }
  [[nodiscard]] std::string content(const std::string& path) const {
    std::ifstream file{folder_.file("files") + path};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  void make_folder(const std::string& path) const {
    std::filesystem::create_directories(folder_.file("files") + path);
    std::filesystem::permissions(folder_.file("files") + path, std::filesystem::perms{0777});
  }
  [[nodiscard]] bool has(const std::string& path) const {
    return std::filesystem::exists(folder_.file("files") + path);
  }

 private:
  [[nodiscard]] std::string nginx(bool is_tls) const {
    const auto& certificates = http::Certificates::get();
    const std::string tls = is_tls ? "ssl_certificate " + certificates.file("server.pem") +
                                         "; ssl_certificate_key " + certificates.file("server.key") + ";\n"
                                   : "";
    return "daemon off; master_process off; pid nginx.pid; error_log error.log;\n"
           "events { worker_connections 256; }\n"
           "http { access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3;\n"
           "uwsgi_temp_path t4; scgi_temp_path t5; client_max_body_size 0;\n" +
           tls + "server { listen 127.0.0.1:" + std::to_string(port_.number()) + (is_tls ? " ssl" : "") +
           "; root " + folder_.file("files") +
           ";\nlocation / { dav_methods PUT DELETE MKCOL COPY MOVE; create_full_put_path on;\n"
           "dav_access user:rw group:rw all:rw; } } }\n";
  }
  [[nodiscard]] std::string apache() const {
    const std::string modules = "/usr/lib/apache2/modules/";
    std::string conf = "ServerRoot " + folder_.path() +
                       "\nServerName localhost\nPidFile pid\nErrorLog error.log\n" +
                       "Listen 127.0.0.1:" + std::to_string(port_.number()) + "\n";
    for (const auto* module : {"mpm_event", "authz_core", "mime", "dav", "dav_fs", "dav_lock"})
      conf += "LoadModule " + std::string{module} + "_module " + modules + "mod_" + module + ".so\n";
    return conf + "TypesConfig /etc/mime.types\nDavLockDB " + folder_.file("lock") + "\nDocumentRoot " +
           folder_.file("files") + "\n<Directory " + folder_.file("files") +
           ">\nDav On\nAllowOverride None\nRequire all granted\n</Directory>\n";
  }

  TempDir folder_;
  const HeldPort port_;
  std::unique_ptr<ServerProcess> server_;
};

class DavTest : public testing::TestWithParam<std::string> {
 protected:
  void expect_service(Guarded& guarded) {
    const auto made = guarded.put("/a.txt", 5, "", "one");
    EXPECT_EQ(made.status, 201U);
    EXPECT_EQ(field(made, "Location"), "/a.txt");
    EXPECT_EQ(guarded.put("/a.txt", 6, "", "two").status, 204U);
    EXPECT_EQ(guarded.put("/a.txt", 5, "", "stale").status, 412U);
    EXPECT_EQ(server_.content("/a.txt"), "two");
    EXPECT_EQ(guarded.send("GET", "/a.txt", claim(6)).body, "two");
    const auto part = guarded.send("GET", "/a.txt", {{"Range", "bytes=1-"}});
    EXPECT_EQ(part.status, 206U);
    EXPECT_EQ(part.body, "wo");
    const std::string large(300'000, 'z');
    EXPECT_EQ(guarded.put("/large", 1, "", large).status, 201U);
    EXPECT_EQ(guarded.send("GET", "/large").body, large);
    EXPECT_EQ(guarded.send("DELETE", "/none", claim(1)).status, 404U);
    EXPECT_EQ(guarded.service().lanes().closed, 0);
  }

  // MOVE or COPY from one to the other, under claims for both.
  static unsigned pair(Guarded& guarded, const std::string& method, const std::string& destination,
                       const std::string& from = "/a.txt") {
    const auto response = guarded.send(method, from,
                                       claim(7, {{"Destination", destination},
                                                 {"Fencing-Destination-Token", "3"},
                                                 {"Fencing-Destination-Holder", "h"}}));
    // What it answered came from the server, or was refused before any claim was looked at.
    EXPECT_EQ(verdict(response), response.status == 400 ? verdict(response) : "admitted");
    return response.status;
  }

  DavServer server_{GetParam() == "nginx-tls" ? "nginx" : GetParam(), GetParam() == "nginx-tls"};
};

TEST_P(DavTest, WritesReadsAndPairsWorkAsTheServerDoesThem) {
  const bool is_tls = GetParam() == "nginx-tls";
  GuardedOptions options;
  if (is_tls) options.lane.upstream_ca_file = http::Certificates::get().file("ca.pem");
  options.resource_depth = 1;
  Guarded guarded{server_.url(is_tls ? "https" : "http"), options};
  expect_service(guarded);
  EXPECT_EQ(pair(guarded, "COPY", "/b%20b.txt") / 100, 2U);
  EXPECT_EQ(server_.content("/b b.txt"), "two");
  EXPECT_EQ(server_.content("/a.txt"), "two");
  EXPECT_EQ(pair(guarded, "MOVE", "http://" + guarded.address() + "/c.txt") / 100, 2U);
  EXPECT_EQ(server_.content("/c.txt"), "two");
  EXPECT_FALSE(server_.has("/a.txt"));
  EXPECT_EQ(guarded.put("/c.txt", 2).status, 412U);
  EXPECT_EQ(pair(guarded, "MOVE", "http://elsewhere/c.txt"), 400U);
  EXPECT_EQ(guarded.service().lanes().closed, 0);
}

// Where each path is a resource, one request on a collection must not reach the members, whose fences are
// higher: neither as what it names nor as its destination.
TEST_P(DavTest, TheMembersOfACollectionSurviveWhatIsDoneToItUnderALowerToken) {
  const bool is_nginx = GetParam() != "apache";
  GuardedOptions options;
  options.lane.upstream_ca_file = http::Certificates::get().file("ca.pem");
  Guarded guarded{server_.url(GetParam() == "nginx-tls" ? "https" : "http"), options};
  server_.make_folder("/accounts");
  ASSERT_EQ(guarded.put("/accounts/77", 90, "", "kept").status, 201U);
  ASSERT_EQ(guarded.put("/a.txt", 5, "", "one").status, 201U);
  for (const auto* method : {"COPY", "MOVE"})
    EXPECT_EQ(pair(guarded, method, "/accounts") / 100, 4U) << method;
  EXPECT_EQ(server_.content("/accounts/77"), "kept");
  const auto removed = guarded.send("DELETE", "/accounts", claim(7));
  EXPECT_EQ(removed.status / 100, 4U);
  EXPECT_EQ(verdict(removed), "admitted");
  EXPECT_EQ(guarded.send("DELETE", "/accounts", claim(7, {{"Depth", "infinity"}})).status, 400U);
  EXPECT_EQ(pair(guarded, "MOVE", "/elsewhere", "/accounts") / 100, 4U);
  EXPECT_EQ(server_.content("/accounts/77"), "kept");
  EXPECT_EQ(pair(guarded, "COPY", "/b.txt") / 100, 2U);
  EXPECT_EQ(server_.content("/b.txt"), "one");
  EXPECT_EQ(pair(guarded, "COPY", "/b.txt"), 412U);
  EXPECT_EQ(guarded.send("DELETE", "/b.txt", claim(8)).status, 204U);
  EXPECT_FALSE(server_.has("/b.txt"));
  // nginx takes a MOVE without 'Depth: 0' only.
  EXPECT_EQ(pair(guarded, "MOVE", "/c.txt") / 100, is_nginx ? 4U : 2U);
  EXPECT_EQ(server_.content(is_nginx ? "/a.txt" : "/c.txt"), "one");
}

TEST_P(DavTest, ACollectionIsMadeAndListedByItsFinalSlash) {
  GuardedOptions options;
  options.lane.upstream_ca_file = http::Certificates::get().file("ca.pem");
  const Guarded guarded{server_.url(GetParam() == "nginx-tls" ? "https" : "http"), options};
  EXPECT_EQ(guarded.send("MKCOL", "/accounts/").status, 428U);
  EXPECT_EQ(guarded.send("MKCOL", "/accounts/", claim(5)).status, 201U);
  EXPECT_TRUE(server_.has("/accounts"));
  EXPECT_EQ(guarded.send("MKCOL", "/accounts/", claim(4)).status, 412U);
  EXPECT_EQ(guarded.send("MKCOL", "/accounts", claim(4)).status, 412U);
  const bool is_apache = GetParam() == "apache";  // the other has no PROPFIND
  EXPECT_EQ(guarded.send("PROPFIND", "/accounts/", {{"Depth", "1"}}).status, is_apache ? 207U : 405U);
  EXPECT_EQ(guarded.send("DELETE", "/accounts/", claim(5)).status, 400U);
}

// Shows that who holds a lock of Apache's can write to what is locked through the guard, and others cannot.
// How: the guard stands in front of a folder, so that its paths are not Apache's.
TEST_P(DavTest, AConditionOnALockHoldsUnderTheGuardsNames) {
  if (GetParam() != "apache") return;  // the other has no LOCK
  server_.make_folder("/dav");
  const Guarded guarded{server_.url() + "/dav"};
  ASSERT_EQ(guarded.put("/a.txt", 5, "", "one").status, 201U);
  const auto locked =
      guarded.send("LOCK", "/a.txt", claim(5, {{"Content-Type", "text/xml"}}),
                   R"(<?xml version="1.0"?><lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope>)"
                   R"(<locktype><write/></locktype></lockinfo>)");
  ASSERT_EQ(locked.status, 200U);
  const auto token = field(locked, "Lock-Token");
  const auto put = [&](const std::string& condition) {
    return guarded.send("PUT", "/a.txt", claim(5, {{"If", condition}}), "two").status;
  };
  EXPECT_EQ(guarded.put("/a.txt", 5, "", "two").status, 423U);
  EXPECT_EQ(put("</a.txt> (" + token + R"( ["none"]))"), 412U) << "the list is not taken for this file's";
  EXPECT_EQ(server_.content("/dav/a.txt"), "one");
  EXPECT_EQ(put("<http://" + guarded.address() + "/a.txt> (" + token + ")"), 204U);
  EXPECT_EQ(put("</a.txt> (" + token + ")"), 204U);
  EXPECT_EQ(put("(" + token + ")"), 204U);
  EXPECT_EQ(server_.content("/dav/a.txt"), "two");
}

TEST_P(DavTest, NoFileOfAccessRulesGovernsItsNeighbours) {
  GuardedOptions options;
  options.lane.upstream_ca_file = http::Certificates::get().file("ca.pem");
  const Guarded guarded{server_.url(GetParam() == "nginx-tls" ? "https" : "http"), options};
  EXPECT_EQ(guarded.put("/.htaccess", 5, "", "Require all denied\nNonsense\n").status, 201U);
  EXPECT_EQ(guarded.put("/a.txt", 5).status, 201U);
  EXPECT_EQ(guarded.send("GET", "/a.txt").status, 200U);
}

INSTANTIATE_TEST_SUITE_P(Servers, DavTest, testing::Values("nginx", "apache", "nginx-tls"),
                         [](const auto& tried) {
                           return tried.param == "nginx-tls" ? std::string{"nginx_under_tls"} : tried.param;
                         });

TEST(DavTlsTest, AServerThatIsNotTheOneNamedIsUnavailable) {
  const DavServer server{"nginx", true};
  const Guarded guarded{server.url("https")};
  const auto response = guarded.put("/a.txt", 1);
  EXPECT_EQ(response.status, 503U);
  EXPECT_EQ(verdict(response), "unavailable");
  EXPECT_FALSE(server.has("/a.txt"));
}

}  // namespace
}  // namespace fenceguard::test
