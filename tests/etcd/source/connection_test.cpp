#include <atomic>

#include "tests/etcd/source/source.hpp"
#include "tests/process/proxy.hpp"

namespace fenceguard::test {
namespace {

etcd::Client client_of(const std::string& url) {
  return etcd::Client{url};
}

// libcurl would send it again by itself.
TEST(EtcdConnection, ARequestWhoseKeptConnectionBreaksIsSentOnce) {
  EtcdCluster cluster{1};
  std::atomic<bool> cuts{false};
  Proxy proxy{cluster.member(0).port(), [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                return direction == Proxy::Direction::to_client && cuts ? 0 : piece.size();
              }};
  auto far = client_of(cluster.url_of_port(proxy.port()));
  auto near = client_of(cluster.url());
  for (int i = 1; i <= 3; ++i) {
    cuts = false;
    EXPECT_TRUE(far.txn({{}, {etcd::put("key", "value")}}).succeeded);
    cuts = true;
    EXPECT_THROW((void)far.txn({{}, {etcd::put("key", "value")}}), OutcomeUnknown);
    EXPECT_EQ(near.range(etcd::get("key")).found.at(0).version, 2 * i);
  }
}

TEST(EtcdConnection, IsKeptAndReused) {
  EtcdCluster cluster{1};
  Proxy proxy{cluster.member(0).port()};
  const auto source = open(cluster.url_of_port(proxy.port()));
  for (int i = 0; i < 20; ++i) source->release(take(*source, "holder").claim);
  EXPECT_EQ(proxy.connections(), 1U);
}

TEST(EtcdConnection, AMemberThatIsDownIsPassedOver) {
  EtcdCluster cluster{3};
  const auto source = open(cluster.url());
  std::optional<Claim> claim;
  wait_until([&] {
    try {
      claim = take(*source, "holder").claim;
    } catch (const Error&) {
      // The leader may have changed.
    }
    return claim.has_value();
  });
  cluster.member(0).kill();
  cluster.wait_until_serving();
  const auto rid = [&] {
    try {
      return source->renew(*claim, long_ttl) == Renewal::renewed;
    } catch (const Error&) {
      return false;  // the leader may have been that one
    }
  };
  wait_until(rid);
  cluster.member(1).kill();
  cluster.member(0).start();
  cluster.wait_until_serving();
  wait_until(rid);
}

// A member forgets its sessions when it starts again; nothing was looked at, so the call is made again.
TEST(EtcdConnection, AnAuthenticationThatIsForgottenIsRenewed) {
  EtcdCluster cluster{1};
  cluster.enable_auth("app", "secret", "fenceguard/");
  const auto source = open(cluster.url("", "app:secret@"));
  const auto claim = take(*source, "holder").claim;
  cluster.member(0).stop();
  cluster.member(0).start();
  cluster.wait_until_serving();
  EXPECT_EQ(source->renew(claim, long_ttl), Renewal::renewed);
  EXPECT_THROW((void)take(*open(cluster.url("", "app:wrong@")), "other"), Unavailable);
  EXPECT_THROW((void)take(*open(cluster.url("", "nobody:secret@")), "other"), Unavailable);
  EXPECT_THROW((void)take(*open(cluster.url()), "other"), Unavailable);
  // Another prefix is not its own.
  EXPECT_THROW((void)take(*open(cluster.url("/other", "app:secret@")), "other"), Unavailable);
  EXPECT_EQ(source->release(claim), Release::released);
}

TEST(EtcdConnection, WithTlsBothSidesAreAuthenticated) {
  EtcdCluster cluster{1, {.arguments = {}, .tls = true}};
  std::string tls{"?"};
  tls += cluster.tls_parameters();
  for (const char* more : {"", "&server_name=etcd.test"}) {
    const auto source = open(cluster.url(tls + more));
    source->release(take(*source, "holder").claim);
  }
  EXPECT_THROW((void)take(*open(cluster.url("?tls=1")), "other"), Unavailable);
  EXPECT_THROW((void)take(*open(cluster.url(tls + "&server_name=else.where")), "other"), Unavailable);
  EXPECT_THROW((void)take(*open(cluster.url()), "other"), Error);
}

}  // namespace
}  // namespace fenceguard::test
