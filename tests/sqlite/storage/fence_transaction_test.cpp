// What a transaction of the committer leaves in the cache of durable fences.

#include "adapters/sqlite/file/fence_transaction.hpp"

#include <gtest/gtest.h>

#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

// A file of two fences, and a cache that has room for one and holds none.
class TransactionAndCache : public testing::Test {
 protected:
  TransactionAndCache() {
    const OpenStorage storage{path_};
    (void)storage.advance(claim_of("a", 5));
    (void)storage.advance(claim_of("b", 6));
  }

  const TempDir folder_;
  const std::string path_ = folder_.file("fences.db");
  FenceCache cache_{1};
};

TEST_F(TransactionAndCache, AFenceFoundInTheTableIsCachedAfterTheCommit) {
  sqlite::FenceTransaction transaction{path_, cache_};
  transaction.begin();
  EXPECT_EQ(transaction.view(Resource{"a"}).record, fence_of(5));
  EXPECT_FALSE(cache_.find(Resource{"a"}));
  ASSERT_EQ(transaction.commit(), sqlite::CommitEnding::committed);
  EXPECT_EQ(cache_.find(Resource{"a"}), fence_of(5));
}

TEST_F(TransactionAndCache, ARollbackCachesNothing) {
  sqlite::FenceTransaction transaction{path_, cache_};
  transaction.begin();
  (void)transaction.view(Resource{"a"});
  transaction.record(Resource{"b"}, fence_of(7));
  transaction.rollback();
  EXPECT_EQ(cache_.size(), 0u);
}

TEST_F(TransactionAndCache, AChangedFenceTakesThePlaceOfTheCachedOne) {
  cache_.put(Resource{"b"}, fence_of(1));
  sqlite::FenceTransaction transaction{path_, cache_};
  for (const std::int64_t token : {7, 8}) {
    transaction.begin();
    EXPECT_EQ(transaction.view(Resource{"b"}).record, fence_of(token - 1));
    transaction.record(Resource{"b"}, fence_of(token));
    ASSERT_EQ(transaction.commit(), sqlite::CommitEnding::committed);
    EXPECT_EQ(cache_.find(Resource{"b"}), fence_of(token));
  }
  transaction.begin();
  transaction.remove(Resource{"b"});
  ASSERT_EQ(transaction.commit(), sqlite::CommitEnding::committed);
  EXPECT_FALSE(cache_.find(Resource{"b"}));
}

}  // namespace
}  // namespace fenceguard::test
