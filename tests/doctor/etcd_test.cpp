#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "adapters/etcd/fences/storage.hpp"
#include "guard/token_source.hpp"
#include "server/doctor/doctor.hpp"
#include "server/doctor/etcd_checks.hpp"
#include "tests/etcd/guard/space.hpp"

namespace fenceguard::test {
namespace {

using Level = Finding::Level;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<Finding> examine(const std::string& url) {
  return etcd::examine_storage(Url::parse(url));
}

// The finding of this check; the worst, where there are several.
Finding find(const std::vector<Finding>& findings, const std::string& check) {
  Finding found{Level::ok, "", "not looked at"};
  for (const auto& finding : findings) {
    if (finding.check == check && (found.check.empty() || finding.level > found.level)) found = finding;
  }
  EXPECT_EQ(found.check, check);
  return found;
}

std::int64_t dangers(const std::vector<Finding>& findings) {
  return std::ranges::count(findings, Level::danger, &Finding::level);
}

TEST(EtcdDoctor, KnowsWhichVersionsLoseOrHideData) {
  using etcd::known_defects;
  EXPECT_THAT(known_defects("3.4.7"), SizeIs(1));
  EXPECT_THAT(known_defects("3.4.19"), IsEmpty());
  EXPECT_THAT(known_defects("3.4.20"), SizeIs(2));
  EXPECT_THAT(known_defects("3.4.41"), SizeIs(1));
  EXPECT_THAT(known_defects("3.4.42"), IsEmpty());
  EXPECT_THAT(known_defects("3.5.0"), SizeIs(3));
  EXPECT_THAT(known_defects("3.5.5"), SizeIs(3));
  EXPECT_THAT(known_defects("3.5.27"), SizeIs(1));
  EXPECT_THAT(known_defects("3.5.28"), IsEmpty());
  EXPECT_THAT(known_defects("3.6.8"), SizeIs(1));
  EXPECT_THAT(known_defects("3.6.9"), IsEmpty());
  EXPECT_THAT(known_defects("3.10.0"), IsEmpty());
}

TEST(EtcdDoctor, TellsOfMembersThatAreAloneEvenInNumberOrGone) {
  EtcdCluster cluster;
  cluster.etcdctl("put fenceguard/floor 1");
  auto findings = examine(cluster.url());
  EXPECT_EQ(find(findings, "members").level, Level::ok);
  EXPECT_EQ(find(findings, "cluster").level, Level::ok);
  EXPECT_EQ(find(findings, "alarms").level, Level::ok);
  EXPECT_EQ(find(findings, "database").level, Level::ok);
  EXPECT_EQ(find(findings, "access").message, "no authentication, no TLS, loopback");
  EXPECT_EQ(find(findings, "namespace").message, "'fenceguard', floor 1, 0 fences");
  EXPECT_EQ(find(findings, "offset").level, Level::ok);
  EXPECT_EQ(dangers(findings), 0);
  const auto one = cluster.url_of_port(cluster.member(0).port());
  EXPECT_THAT(find(examine(one), "members").message, HasSubstr("name three or five"));
  const auto two = fmt::format("{},127.0.0.1:{}", one, cluster.member(1).port());
  EXPECT_THAT(find(examine(two), "members").message, HasSubstr("an odd number is better"));
  const auto same = fmt::format("{0},127.0.0.1:{1},127.0.0.1:{1}", one, cluster.member(1).port());
  EXPECT_THAT(find(examine(same), "cluster").message, HasSubstr("one and the same member"));
  // One that does not lead, so that the others need not choose who does.
  const std::size_t gone = cluster.leader() == 2 ? 1 : 2;
  cluster.member(gone).kill();
  cluster.wait_until_serving();
  findings = examine(cluster.url());
  EXPECT_EQ(find(findings, "members").level, Level::warning);
  EXPECT_THAT(find(findings, "members").message, HasSubstr(std::to_string(cluster.member(gone).port())));
  EXPECT_EQ(dangers(findings), 0);
  cluster.member(gone == 2 ? 1 : 2).kill();
  findings = examine(cluster.url("?timeout=1s"));
  EXPECT_EQ(find(findings, "namespace").level, Level::danger) << "without a majority nothing answers";
}

TEST(EtcdDoctor, TellsOfEndpointsOfDifferentClusters) {
  EtcdCluster one{1};
  EtcdCluster other{1};
  const auto both = fmt::format("{},127.0.0.1:{}", one.url(), other.member(0).port());
  const auto finding = find(examine(both), "cluster");
  EXPECT_EQ(finding.level, Level::danger);
  EXPECT_THAT(finding.message, HasSubstr("2 different clusters"));
}

TEST(EtcdDoctor, TellsOfAFullDatabase) {
  EtcdCluster cluster{1, {.arguments = {"--quota-backend-bytes", "200000"}}};
  cluster.etcdctl("put fenceguard/floor 1");
  // Until it is full.
  for (int i = 0; i < 20; ++i) {
    try {
      cluster.etcdctl(fmt::format("put big{} {}", i, std::string(50'000, 'x')));
    } catch (const std::runtime_error&) {
      break;
    }
  }
  const auto finding = find(examine(cluster.url()), "alarms");
  EXPECT_EQ(finding.level, Level::danger);
  EXPECT_THAT(finding.message, HasSubstr("alarm disarm"));
}

TEST(EtcdDoctor, TellsOfAnUninitialisedNamespaceAndAnOffsetThatIsNoNumber) {
  EtcdSpace space{shared_cluster()};
  const auto url = shared_cluster().url("/" + space.address().prefix);
  EXPECT_EQ(dangers(examine(url)), 0);
  space.set(space.keys().offset(), "abc");
  EXPECT_THAT(find(examine(url), "offset").message, HasSubstr("holds no number"));
  EXPECT_EQ(find(etcd::examine_source(Url::parse(url)), "offset").level, Level::danger);
  space.remove(space.keys().offset());
  space.remove(space.keys().floor());
  EXPECT_THAT(find(examine(url), "namespace").message, HasSubstr("fenceguard fence init"));
  space.set(space.keys().floor(), "x");
  EXPECT_THAT(find(examine(url), "namespace").message, HasSubstr("damaged"));
}

// After a restored snapshot: what doctor says to do makes it well.
TEST(EtcdDoctor, TellsOfASourceThatIsBehindTheFencesAndWhatToDoAboutIt) {
  EtcdSpace space{shared_cluster()};
  const auto url = shared_cluster().url("/" + space.address().prefix);
  space.set(space.keys().fence(Resource{"a"}), "1000000 - open h");
  for (const auto& findings : {examine(url), etcd::examine_source(Url::parse(url))}) {
    const auto finding = find(findings, "order");
    EXPECT_EQ(finding.level, Level::danger);
    for (const auto* part : {"restored from a snapshot", "lease raise' with --token 1000000", "fence init"})
      EXPECT_THAT(finding.message, HasSubstr(part));
  }
  const auto storage = etcd::open_storage(Url::parse(url), {});
  storage->own_source()->raise(Resource{"a"}, Token{1'000'000});
  EXPECT_EQ(find(examine(url), "order").level, Level::ok);
  // The highest number that there is does not overflow.
  space.set(space.keys().offset(), std::to_string(INT64_MAX));
  space.set(space.keys().fence(Resource{"a"}), fmt::format("{} - open h", INT64_MAX));
  EXPECT_EQ(find(examine(url), "order").level, Level::ok);
}

TEST(EtcdDoctor, TellsWhetherAnybodyMayReadAndNeverThePassword) {
  EtcdCluster cluster{1};
  cluster.etcdctl("put fenceguard/floor 1");
  cluster.enable_auth("worker", "secret", "fenceguard/");
  const auto findings = examine(cluster.url("", "worker:secret@"));
  EXPECT_EQ(find(findings, "access").message, "authentication, no TLS, loopback");
  EXPECT_EQ(dangers(findings), 0);
  for (const auto& finding : findings) EXPECT_EQ(finding.message.find("secret"), std::string::npos);
  EXPECT_EQ(find(examine(cluster.url()), "namespace").level, Level::danger);
}

TEST(EtcdDoctor, AClusterWithoutAnAnsweringMemberIsAFault) {
  EXPECT_THROW((void)examine(fmt::format("etcd://127.0.0.1:{}", free_port())), Unavailable);
}

}  // namespace
}  // namespace fenceguard::test
