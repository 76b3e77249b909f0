#include "tests/etcd/guard/space.hpp"

namespace fenceguard::test {
namespace {

using etcd::put;

etcd::Address address(const std::string& url) {
  return etcd::address_of(Url::parse(url));
}

// A user who may do nothing outside the namespace and his own keys.
TEST(EtcdGuardAccess, UserWithRightsOfTheNamespaceOnlyIsEnough) {
  EtcdCluster cluster{1};
  cluster.etcdctl("put app/floor 4");
  cluster.enable_auth("worker", "secret word?", "app");
  const auto url = cluster.url("/app", "worker:secret%20word%3F@");
  etcd::Client client{address(url)};
  etcd::Guard guard{client};
  EXPECT_TRUE(guard.write(claim_of(5), {put("app-data/x", "v")}).is_done());
  EXPECT_EQ(guard.advance(claim_of(4, "old")).verdict, Verdict::stale);
  EXPECT_NE(cluster.etcdctl("get app-data/x").find("\nv\n"), std::string::npos);

  const auto denied = fault_of_call([&] { return guard.write(claim_of(6), {put("elsewhere", "v")}); });
  EXPECT_EQ(denied.kind, FaultKind::unavailable);
  EXPECT_EQ(denied.message.find("secret"), std::string::npos);
  EXPECT_EQ(guard.advance(claim_of(5)).verdict, Verdict::admitted) << "what was refused moved nothing";

  for (const auto& credentials : {"", "worker:wrong@", "nobody:x@"}) {
    etcd::Client stranger{address(cluster.url("/app", credentials))};
    etcd::Guard refused{stranger};
    EXPECT_EQ(kind_of([&] { return refused.advance(claim_of(9)); }), FaultKind::unavailable) << credentials;
  }
  EXPECT_EQ(guard.advance(claim_of(5)).highest, 5);
}

TEST(EtcdGuardAccess, AuthenticationThatIsSwitchedOnOrOffUnderAGuardIsNoticed) {
  EtcdCluster cluster{1};
  cluster.etcdctl("put app/floor 0");
  etcd::Client client{address(cluster.url("/app", "worker:secret@"))};
  etcd::Guard guard{client};
  EXPECT_TRUE(guard.write(claim_of(5), {put("app-data/x", "1")}).is_done());
  cluster.enable_auth("worker", "secret", "app");
  EXPECT_TRUE(guard.write(claim_of(6), {put("app-data/x", "2")}).is_done());
  cluster.etcdctl("auth disable");
  EXPECT_TRUE(guard.write(claim_of(7), {put("app-data/x", "3")}).is_done());
}

TEST(EtcdGuardAccess, OverTlsWithAClientCertificateAndNeverToAnUntrustedServer) {
  EtcdCluster cluster{1, {.arguments = {}, .tls = true}};
  cluster.etcdctl("put tls/floor 0");
  etcd::Client client{address(cluster.url("/tls?" + cluster.tls_parameters()))};
  etcd::Guard guard{client};
  EXPECT_TRUE(guard.write(claim_of(5), {put("data/x", "v")}).is_done());
  for (const auto& parameters :
       {std::string{"tls=1"}, "cacert=" + cluster.ca_file(),
        cluster.tls_parameters() + "&server_name=other.test", std::string{"timeout=1s"}}) {
    etcd::Client stranger{address(cluster.url("/tls?" + parameters))};
    etcd::Guard refused{stranger};
    EXPECT_EQ(kind_of([&] { return refused.advance(claim_of(9)); }), FaultKind::unavailable) << parameters;
  }
  etcd::Client named{address(cluster.url("/tls?server_name=etcd.test&" + cluster.tls_parameters()))};
  etcd::Guard by_name{named};
  EXPECT_EQ(by_name.advance(claim_of(5)).highest, 5);
}

}  // namespace
}  // namespace fenceguard::test
