// Leases are found by the keys of all locks.

#include <gmock/gmock.h>

#include "adapters/etcd/lock/lock_client.hpp"
#include "tests/etcd/source/source.hpp"

namespace fenceguard::test {
namespace {

TEST(LockName, ALocksKeyTellsItsResource) {
  for (const std::string pattern : {"", "theirs/%s/lock"}) {
    const etcd::LockName name{"fenceguard", pattern};
    for (const char* of : {"a", "a/b", "a%2Fb", "a b", "lock/lock", "\u00e4"})
      EXPECT_EQ(name.resource_of(name.key_of(Resource{of}, 0x1f)), Resource{of}) << pattern << of;
    for (const char* key : {"", "a", "a/1", "fenceguard/lock/", "fenceguard/lock//1", "fenceguard/lock/%zz/1",
                            "fenceguard/lock/..%2Fa/1", "theirs//lock/1", "theirs/lock/1", "theirs/a/1"})
      EXPECT_FALSE(name.resource_of(key)) << pattern << key;
  }
}

TEST(Listing, NamesTheHolderAndNeitherWaitersNorWhatIsNoLock) {
  const EtcdCluster cluster{1};
  etcd::Client client{cluster.url()};
  const auto source = open(cluster.url());
  const auto grant = take(*source, "a");
  for (const auto& key : {lock + "/0", lock + "/ffffffffffffffff"})
    (void)client.txn({{}, {etcd::put(key, "w awaits")}, {}});
  for (const char* key : {"fenceguard/lock/nonsense", "fenceguard/lock/%zz/1"})
    (void)client.txn({{}, {etcd::put(key, "w 0")}, {}});
  auto& lister = dynamic_cast<LeaseLister&>(*source);
  const auto page = lister.list_leases({});
  ASSERT_EQ(page.entries.size(), 1U);
  EXPECT_EQ(page.entries[0].claim, (Claim{resource, grant.claim.token, {}, {}}));
  source->raise(resource, Token{1'000'000'000});
  EXPECT_EQ(lister.list_leases({}).entries.at(0).claim.token, grant.claim.token);
}

TEST(Listing, LooksAtABoundedNumberOfKeys) {
  const EtcdCluster cluster{1};
  etcd::Client client{cluster.url()};
  const auto source = open(cluster.url());
  (void)take(*source, "a");
  for (std::int64_t made = 0; made < etcd::LockClient::list_keys_max;) {
    etcd::Txn some;
    for (; some.then.size() < 100; ++made)
      some.then.push_back(etcd::put("fenceguard/lock/many%2F" + std::to_string(made) + "/1", "h 0"));
    (void)client.txn(some);
  }
  auto& lister = dynamic_cast<LeaseLister&>(*source);
  EXPECT_EQ(lister.list_leases({.prefix = "accounts/", .after = {}, .limit = 9}).entries.size(), 1U);
  EXPECT_EQ(lister.list_leases({.prefix = "many/", .after = {}, .limit = 9}).entries.size(), 9U);
  try {
    (void)lister.list_leases({});
    FAIL() << "it was listed";
  } catch (const Unavailable& fault) {
    EXPECT_THAT(fault.what(), testing::HasSubstr("more than 20000"));
  }
}

}  // namespace
}  // namespace fenceguard::test
