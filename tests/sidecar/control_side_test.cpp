// The control side as a client sees it: fences, roles, hosts, probes, and what keeps web pages out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <future>
#include <optional>

#include "guard/error.hpp"
#include "tests/sidecar/running.hpp"

namespace fenceguard::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class ControlSideTest : public testing::Test {
 protected:
  Running running_;
};

TEST_F(ControlSideTest, AFenceIsAdvancedByHeaderFieldsOrJson) {
  const auto advanced = running_.control("POST", "/v1/fences/accounts/42/advance", {}, claim_fields(34));
  EXPECT_EQ(advanced.status, 200U);
  EXPECT_EQ(json_of(advanced).at("verdict"), "admitted");
  EXPECT_EQ(json_of(advanced).at("highest"), "34");
  EXPECT_EQ(field(advanced, "Fencing-Verdict"), "admitted");
  EXPECT_EQ(
      running_.control("POST", "/v1/fences/accounts/42/advance", R"({"token":"35","holder":"b"})").status,
      200U);
  const auto stale = running_.control("POST", "/v1/fences/accounts/42/advance", {}, claim_fields(34));
  EXPECT_EQ(stale.status, 412U);
  EXPECT_EQ(field(stale, "Fencing-Highest"), "35");
  const auto conflict =
      running_.control("POST", "/v1/fences/accounts/42/advance", R"({"token":"35","holder":"c"})");
  EXPECT_EQ(conflict.status, 409U);
  EXPECT_EQ(problem_of(conflict), "conflict");
  EXPECT_EQ(running_.metric("fenceguard_advances_total"), 2);
}

TEST_F(ControlSideTest, AnAdvanceNeedsOneClaim) {
  const auto target = "/v1/fences/a/advance";
  EXPECT_EQ(running_.control("POST", target).status, 428U);
  EXPECT_EQ(running_.control("POST", target, R"({"holder":"h"})").status, 400U);
  EXPECT_EQ(running_.control("POST", target, R"({"token":34})").status, 400U);
  EXPECT_EQ(running_.control("POST", target, R"({"token":"34","sequence":"1"})").status, 400U);
  EXPECT_EQ(running_.control("POST", target, R"({"token":"34"})", claim_fields(34)).status, 400U);
  EXPECT_EQ(running_.control("GET", "/v1/fences/a").status, 404U);
}

TEST_F(ControlSideTest, AFenceIsShownWithoutItsHolder) {
  running_.data("PUT", "/a",
                {{"Fencing-Token", "34"}, {"Fencing-Holder", "the-holder"}, {"Fencing-Sequence", "7"}}, "x");
  const auto shown = running_.control("GET", "/v1/fences/a");
  EXPECT_EQ(shown.status, 200U);
  EXPECT_EQ(json_of(shown),
            (boost::json::value{{"resource", "a"}, {"token", "34"}, {"sequence", "7"}, {"closed", false}}));
  EXPECT_THAT(shown.body, Not(HasSubstr("the-holder")));
  running_.data("PUT", "/b", claim_fields(9007199254740993), "x");
  EXPECT_EQ(json_of(running_.control("GET", "/v1/fences/b")),
            (boost::json::value{
                {"resource", "b"}, {"token", "9007199254740993"}, {"sequence", nullptr}, {"closed", false}}));
  EXPECT_EQ(problem_of(running_.control("GET", "/v1/fences/nothing")), "not-found");
}

TEST_F(ControlSideTest, FencesAreListedInPages) {
  for (const char* name : {"a/1", "a/2", "a/3", "b/1"}) {
    running_.control("POST", std::string{"/v1/fences/"} + name + "/advance", {}, claim_fields(5));
  }
  const auto first = json_of(running_.control("GET", "/v1/fences?prefix=a/&limit=2"));
  EXPECT_EQ(first.at("fences").as_array().size(), 2U);
  EXPECT_EQ(first.at("next"), "a/2");
  const auto rest = json_of(running_.control("GET", "/v1/fences?prefix=a%2F&limit=2&after=a/2"));
  ASSERT_EQ(rest.at("fences").as_array().size(), 1U);
  EXPECT_EQ(rest.at("fences").as_array()[0].at("resource"), "a/3");
  EXPECT_TRUE(rest.at("next").is_null());
  EXPECT_EQ(json_of(running_.control("GET", "/v1/fences")).at("fences").as_array().size(), 4U);
}

TEST_F(ControlSideTest, ARevokeClosesTheFenceAndEndsTheLease) {
  const auto lease = running_.acquire(R"("resource":"a","ttl_ms":60000)");
  const auto claim = granted_claim(lease);
  EXPECT_EQ(running_.data("PUT", "/a", claim, "x").status, 201U);
  const auto revoked = running_.control("POST", "/v1/fences/a/revoke");
  EXPECT_EQ(revoked.status, 200U);
  EXPECT_EQ(json_of(revoked).at("closed"), true);
  EXPECT_EQ(json_of(revoked).at("lease_ended"), true);
  EXPECT_EQ(running_.data("PUT", "/a", claim, "y").status, 412U);
  EXPECT_EQ(running_.control("PUT", "/v1/leases/a", {}, claim).status, 412U);
  // It is no ban: the next higher token opens the fence again.
  const auto next = running_.acquire(R"("resource":"a")");
  EXPECT_EQ(next.status, 201U);
  EXPECT_EQ(running_.data("PUT", "/a", granted_claim(next), "z").status, 204U);
  EXPECT_EQ(running_.control("POST", "/v1/fences/nothing/revoke").status, 404U);
}

TEST_F(ControlSideTest, ARevokeThatClosedTheFenceAndFailedThenEndsTheLeaseAllTheSame) {
  const auto lease = running_.acquire(R"("resource":"a","ttl_ms":60000)");
  running_.fences().fails_after_revoke = true;
  const auto revoked = running_.control("POST", "/v1/fences/a/revoke");
  EXPECT_EQ(revoked.status, 503U);
  EXPECT_EQ(field(revoked, "Retry-After"), "9");
  EXPECT_FALSE(running_.lease("a"));
  EXPECT_EQ(running_.control("PUT", "/v1/leases/a", {}, granted_claim(lease)).status, 412U);
}

// A source that hangs at a gate until it is opened.
class HangingSource : public testing::Test {
 protected:
  HangingSource() {
    RunningOptions options;
    options.sidecar.source_wait = 50ms;
    running_.emplace(std::move(options));
  }
  http::Response revoke(Gate& gate) {
    gate.close();
    auto asked =
        std::async(std::launch::async, [this] { return running_->control("POST", "/v1/fences/a/revoke"); });
    EXPECT_EQ(asked.wait_for(http::patience), std::future_status::ready) << "it waits for the source";
    gate.open();
    return asked.get();
  }
  // The fence is what keeps the holder out.
  void expect_closed_without_the_source(Gate& gate) {
    const auto claim = granted_claim(running_->acquire(R"("resource":"a","ttl_ms":60000)"));
    const auto revoked = revoke(gate);
    ASSERT_EQ(revoked.status, 200U);
    auto body = json_of(revoked).as_object();
    EXPECT_EQ(body["closed"], true);
    EXPECT_EQ(body["lease_ended"], false);
    EXPECT_TRUE(body.contains("detail"));
    EXPECT_EQ(running_->data("PUT", "/a", claim, "y").status, 412U);
  }

  std::optional<Running> running_;
};

TEST_F(HangingSource, ARevokeClosesTheFenceWhereTheLeaseCannotBeLookedAt) {
  expect_closed_without_the_source(running_->source().showing);
}

TEST_F(HangingSource, ARevokeIsAnsweredWhereTheLeaseCannotBeEnded) {
  expect_closed_without_the_source(running_->source().releasing);
}

// Nothing was there to be closed, and what the source has is not known.
TEST_F(HangingSource, ARevokeThatFindsNoFenceIsUnavailable) {
  EXPECT_EQ(revoke(running_->source().showing).status, 503U);
}

TEST_F(ControlSideTest, ARevokeThatFailsWithAnOpenFenceLeavesTheLease) {
  const auto lease = running_.acquire(R"("resource":"a","ttl_ms":60000)");
  running_.fences().set_fault(FaultKind::unavailable);
  EXPECT_EQ(running_.control("POST", "/v1/fences/a/revoke").status, 503U);
  running_.fences().set_fault(std::nullopt);
  EXPECT_TRUE(running_.lease("a"));
  EXPECT_EQ(running_.control("PUT", "/v1/leases/a", {}, granted_claim(lease)).status, 200U);
}

TEST_F(ControlSideTest, IdleFencesAreFoldedIntoTheFloor) {
  const auto lease = running_.acquire(R"("resource":"old","ttl_ms":60000)");
  const auto old_claim = granted_claim(lease);
  running_.release("old", old_claim);
  const auto held = running_.acquire(R"("resource":"held","ttl_ms":60000)");
  const auto compacted = running_.control("POST", "/v1/fences/compact");
  EXPECT_EQ(compacted.status, 200U);
  EXPECT_EQ(json_of(compacted).at("dropped"), 1);
  EXPECT_EQ(running_.control("GET", "/v1/fences/old").status, 404U);
  EXPECT_EQ(running_.data("PUT", "/old", old_claim, "x").status, 412U);
  EXPECT_EQ(running_.data("PUT", "/held", granted_claim(held), "x").status, 201U);
  EXPECT_GT(running_.metric("fenceguard_floor"), 0);
}

TEST_F(ControlSideTest, WhereTokensComeFromSeveralCountersNothingIsCompacted) {
  running_.source().counts_separately = true;
  const auto refused = running_.control("POST", "/v1/fences/compact");
  EXPECT_EQ(refused.status, 409U);
  EXPECT_EQ(problem_of(refused), "not-compactable");
}

TEST_F(ControlSideTest, ASourceIsRaisedButNotBeyondTheBound) {
  EXPECT_EQ(running_.control("POST", "/v1/leases/a/raise", R"({"token":"5000"})").status, 200U);
  const auto lease = running_.acquire(R"("resource":"a")");
  EXPECT_EQ(json_of(lease).at("token"), "5001");
  const auto refused = running_.control("POST", "/v1/leases/a/raise", R"({"token":"9223372036854775807"})");
  EXPECT_EQ(refused.status, 422U);
  EXPECT_EQ(problem_of(refused), "implausible");
  EXPECT_EQ(running_.control("POST", "/v1/leases/a/raise").status, 400U);
}

TEST_F(ControlSideTest, ABodyIsJsonAndSaysSo) {
  const std::string body = R"({"resource":"a"})";
  for (const char* type : {"application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""}) {
    const auto refused = running_.control("POST", "/v1/leases", body, {{"Content-Type", type}});
    EXPECT_EQ(refused.status, 415U) << type;
    EXPECT_EQ(problem_of(refused), "media-type");
  }
  http::Client client{server_url(running_.sidecar().control_address())};
  EXPECT_EQ(client.send({.method = "POST", .target = "/v1/leases", .fields = {}, .body = body}).status, 415U);
  http::Request good{.method = "POST", .target = "/v1/leases", .fields = {}, .body = body};
  good.fields.add("Content-Type", "Application/JSON; charset=utf-8");
  EXPECT_EQ(client.send(good).status, 201U);
}

TEST_F(ControlSideTest, BadJsonIs400AndGrantsNothing) {
  for (const char* body :
       {"{", "[]", "{}", R"({"resource":7})", R"({"resource":""})", R"({"resource":"../a"})",
        R"({"resource":"a","x":1})", R"({"resource":"a","ttl_ms":9})",
        R"({"resource":"a","ttl_ms":86400001})", R"({"resource":"a","ttl_ms":"10"})",
        R"({"resource":"a","wait_ms":-1})", R"({"resource":"a","wait_ms":600001})",
        R"({"resource":"a","holder":""})", R"({"resource":"a","holder":"a b"})",
        R"({"resource":"b","resource":"a"})", R"({"resource":"a","ttl_ms":1.5})"}) {
    EXPECT_EQ(running_.control("POST", "/v1/leases", body).status, 400U) << body;
  }
  const std::string deep = R"({"resource":)" + std::string(5000, '[') + std::string(5000, ']') + "}";
  EXPECT_EQ(running_.control("POST", "/v1/leases", deep).status, 400U);
  EXPECT_EQ(running_.control("POST", "/v1/leases", std::string(70'000, ' ')).status, 413U);
  EXPECT_FALSE(running_.lease("a"));
}

TEST_F(ControlSideTest, AWebPageCannotDriveIt) {
  http::RawClient page{running_.sidecar().control_address()};
  const auto ask = [&](const std::string& head) {
    http::RawClient client{running_.sidecar().control_address()};
    client.send("POST /v1/fences/a/revoke HTTP/1.1\r\nContent-Length: 0\r\n" + head + "\r\n");
    return client.receive();
  };
  const auto& address = running_.sidecar().control_address();
  const auto port = address.substr(address.rfind(':'));
  EXPECT_EQ(ask("Host: evil.example\r\n").status, 403U);
  EXPECT_EQ(ask("Host: evil.example" + port + "\r\n").status, 403U);
  EXPECT_EQ(ask("Host: localhost:1\r\n").status, 403U);
  EXPECT_EQ(ask("Host: localhost" + port + "\r\nOrigin: http://evil.example\r\n").status, 403U);
  EXPECT_EQ(ask("Host: localhost" + port + "\r\nOrigin: null\r\n").status, 403U);
  EXPECT_EQ(ask("Host: localhost" + port + "\r\nContent-Type: application/x-www-form-urlencoded\r\n").status,
            415U);
  EXPECT_EQ(ask("Host: localhost" + port + "\r\nOrigin: http://localhost" + port + "\r\n").status, 404U);
  EXPECT_EQ(ask("Host: localhost\r\n").status, 404U);
  EXPECT_THAT(ask("Host: evil.example\r\n").body, HasSubstr("foreign-host"));
}

TEST_F(ControlSideTest, UnknownRoutesAre404AndOtherMethods405) {
  EXPECT_EQ(running_.control("GET", "/v1/nothing").status, 404U);
  const auto refused = running_.control("PUT", "/v1/leases");
  EXPECT_EQ(refused.status, 405U);
  EXPECT_EQ(field(refused, "Allow"), "POST, GET, HEAD");
}

TEST_F(ControlSideTest, ProbesAnswer) {
  EXPECT_EQ(running_.control("GET", "/healthz").status, 200U);
  EXPECT_EQ(running_.control("GET", "/readyz").status, 200U);
  const auto metrics = running_.control("GET", "/metrics");
  EXPECT_THAT(field(metrics, "Content-Type"), HasSubstr("version=0.0.4"));
  EXPECT_THAT(metrics.body, HasSubstr("fenceguard_build_info{version="));
}

TEST(ControlService, WithoutASourceLeasesAre501AndFencesWork) {
  RunningOptions options;
  options.has_source = false;
  const Running running{std::move(options)};
  const auto refused = running.acquire(R"("resource":"a")");
  EXPECT_EQ(refused.status, 501U);
  EXPECT_EQ(problem_of(refused), "no-source");
  EXPECT_EQ(running.control("GET", "/v1/leases/a").status, 501U);
  EXPECT_EQ(running.control("POST", "/v1/fences/a/advance", {}, claim_fields(5)).status, 200U);
  EXPECT_EQ(running.control("POST", "/v1/fences/a/revoke").status, 200U);
  EXPECT_EQ(running.data("PUT", "/a", claim_fields(5), "x").status, 412U);
  EXPECT_EQ(running.control("POST", "/v1/fences/compact").status, 409U);
}

TEST(ControlService, AUnixSocketServesAnyHost) {
  const test::TempDir folder;
  RunningOptions options;
  options.sidecar.control = "unix:" + folder.file("control.sock");
  options.sidecar.listen = "unix:" + folder.file("data.sock");
  const Running running{std::move(options)};
  EXPECT_EQ(running.control("POST", "/v1/fences/a/advance", {}, claim_fields(5)).status, 200U);
  EXPECT_EQ(running.data("PUT", "/a", claim_fields(5), "x").status, 201U);
}

TEST(ControlService, TheProbeAddressServesTheProbesOnly) {
  const test::TempDir folder;
  RunningOptions options;
  options.sidecar.probe = "unix:" + folder.file("probe.sock");
  const Running running{std::move(options)};
  http::Client client{"unix:" + folder.file("probe.sock")};
  const auto status = [&](const char* method, const char* target) {
    return client.send({.method = method, .target = target, .fields = {}, .body = {}}).status;
  };
  EXPECT_EQ(status("GET", "/healthz"), 200U);
  EXPECT_EQ(status("GET", "/readyz"), 200U);
  EXPECT_EQ(status("GET", "/metrics"), 200U);
  EXPECT_EQ(status("GET", "/v1/fences"), 404U);
  EXPECT_EQ(status("POST", "/v1/fences/compact"), 404U);
  EXPECT_EQ(status("POST", "/healthz"), 405U);
}

TEST(ControlService, ItBindsElsewhereOnlyWithATokenFile) {
  RunningOptions options;
  options.sidecar.control = "0.0.0.0:0";
  EXPECT_THROW(Running{std::move(options)}, InvalidInput);
}

class RolesTest : public testing::Test {
 protected:
  static RunningOptions options(const std::string& path) {
    std::ofstream{path} << "lease lease-0123456789abcdef\nadmin admin-0123456789abcdef\n";
    chmod(path.c_str(), 0600);
    RunningOptions options;
    options.sidecar.control_token_file = path;
    return options;
  }
  unsigned status(const std::string& method, const std::string& target, const std::string& token = "",
                  const std::string& json = "", Pairs fields = {}) {
    if (!token.empty()) fields.emplace_back("Authorization", "Bearer " + token);
    return running_.control(method, target, json, fields).status;
  }

  const std::string lease_ = "lease-0123456789abcdef";
  const std::string admin_ = "admin-0123456789abcdef";
  test::TempDir folder_;
  const std::string path_ = folder_.file("tokens");
  Running running_{options(path_)};
};

TEST_F(RolesTest, WithoutATokenOnlyTheProbesAnswer) {
  const auto refused = running_.control("GET", "/v1/fences");
  EXPECT_EQ(refused.status, 401U);
  EXPECT_THAT(field(refused, "WWW-Authenticate"), HasSubstr("Bearer"));
  EXPECT_EQ(status("GET", "/v1/fences", "wrong-0123456789abcdef"), 401U);
  for (const char* open : {"/healthz", "/readyz", "/metrics"}) EXPECT_EQ(status("GET", open), 200U);
}

TEST_F(RolesTest, TheLeaseRoleLeasesAndLooksButDoesNotOverrule) {
  EXPECT_EQ(status("POST", "/v1/leases", lease_, R"({"resource":"a","holder":"h","ttl_ms":600000})"), 201U);
  EXPECT_EQ(status("GET", "/v1/leases/a", lease_), 200U);
  EXPECT_EQ(status("GET", "/v1/fences", lease_), 200U);
  EXPECT_EQ(status("GET", "/v1/fences/a", lease_), 200U);
  EXPECT_EQ(status("POST", "/v1/fences/b/advance", lease_, R"({"token":"1"})"), 200U);
  EXPECT_EQ(status("POST", "/v1/fences/a/revoke", lease_), 403U);
  EXPECT_EQ(status("POST", "/v1/fences/compact", lease_), 403U);
  EXPECT_EQ(status("POST", "/v1/leases/a/raise", lease_, R"({"token":"9"})"), 403U);
  EXPECT_EQ(status("POST", "/v1/leases/a/raise", admin_, R"({"token":"9"})"), 200U);
  EXPECT_EQ(status("POST", "/v1/fences/a/revoke", admin_), 200U);
  EXPECT_EQ(status("POST", "/v1/fences/compact", admin_), 200U);
}

TEST_F(RolesTest, TokensAreReloadedAndTheOldOnesStayOnError) {
  std::ofstream{path_, std::ios::trunc} << "nonsense\n";
  EXPECT_THROW(running_.sidecar().reload_tokens(), InvalidInput);
  EXPECT_EQ(status("GET", "/v1/fences", lease_), 200U);
  std::ofstream{path_, std::ios::trunc} << "admin other-0123456789abcdef\n";
  running_.sidecar().reload_tokens();
  EXPECT_EQ(status("GET", "/v1/fences", lease_), 401U);
  EXPECT_EQ(status("GET", "/v1/fences", "other-0123456789abcdef"), 200U);
}

}  // namespace
}  // namespace fenceguard::test
