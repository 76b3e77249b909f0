#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/postgres/storage/database.hpp"

namespace fenceguard::postgres::test {
namespace {

using testing::HasSubstr;

TEST(DatabaseFences, AnAdvanceUsesUpNoSequence) {
  const Database database;
  const auto storage = database.open();
  EXPECT_EQ(advance(*storage, claim("a", 5).with(Sequence{9})).verdict, Verdict::admitted);
  EXPECT_FALSE(show(*storage, "a").record->sequence);
  database.run("SELECT fenceguard.rule('a', 5, 'h', 7)");
  EXPECT_EQ(advance(*storage, claim("a", 5).with(Sequence{7})).verdict, Verdict::admitted);
}

TEST(DatabaseFences, AViewHoldsRecordAndFloor) {
  const Database database;
  const auto storage = database.open();
  EXPECT_EQ(show(*storage, "a"), (FenceView{std::nullopt, 0}));
  database.run("SELECT fenceguard.init(3)");
  (void)advance(*storage, claim("a", 5, "h1"));
  database.run("SELECT fenceguard.rule('a', 5, 'h1', 7)");
  EXPECT_EQ(show(*storage, "a"), (FenceView{Fence{Token{5}, Holder{"h1"}, Sequence{7}, false}, 3}));
}

TEST(DatabaseFences, TheDatabasesDefaultsDoNotMatter) {
  const Database database;
  database.set("default_transaction_isolation", "serializable");
  database.set("search_path", "pg_temp");
  const auto storage = database.open();
  EXPECT_EQ(advance(*storage, claim("a", 5)).verdict, Verdict::admitted);
  EXPECT_EQ(show(*storage, "a").record->token, Token{5});
}

TEST(DatabaseFences, StatusFollowsTheDatabase) {
  const Database database;
  const auto storage = database.open();
  EXPECT_EQ(storage->fences().status().state, StoreState::ready);
  (void)advance(*storage, claim("a", 7));
  EXPECT_EQ(storage->fences().status().highest, 7);  // at once, and not only when it is next looked at
  database.run("SELECT fenceguard.init(9)");
  wait_until([&] { return storage->fences().status().floor == 9; });
  EXPECT_EQ(storage->fences().status().highest, 9);
  EXPECT_EQ(storage->fences().status().resources, 1);
  database.run("DELETE FROM fenceguard.floor");
  wait_until([&] { return storage->fences().status().state == StoreState::uninitialised; });
  EXPECT_THAT(storage->fences().status().reason, HasSubstr("fence init"));
}

TEST(DatabaseFences, ManyFencesAreEstimated) {
  const Database database;
  database.run(
      "INSERT INTO fenceguard.fences (resource, token, holder) SELECT 'r/' || n, n, '' FROM "
      "generate_series(1, 5000) n; ANALYZE fenceguard.fences");
  const auto storage = database.open();
  EXPECT_EQ(storage->fences().status().resources, 5000);
  EXPECT_EQ(storage->fences().status().highest, 5000);
}

TEST(DatabaseFences, ARoleOfAnApplicationMayAdvanceAndNotLook) {
  const Database database;
  database.run("DO $$ BEGIN CREATE ROLE an_application LOGIN; EXCEPTION WHEN duplicate_object THEN END $$");
  Url url = database.url();
  url.user = "an_application";
  const auto storage = open_storage(url, {});
  EXPECT_EQ(advance(*storage, claim("a", 1)).verdict, Verdict::admitted);
  EXPECT_THROW((void)show(*storage, "a"), Unavailable);
  EXPECT_THROW((void)wait_for<FenceView>([&](Done<FenceView> done) {
                 storage->fences().rebase({Resource{"a"}, Token{9}, "somebody"}, std::move(done));
               }),
               Unavailable);
}

}  // namespace
}  // namespace fenceguard::postgres::test
