#include "adapters/sqlite/lock/lease_table.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "adapters/sqlite/file/schema.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::sqlite {
namespace {

std::int64_t rows_in(sqlite3* connection) {
  Statement count{connection, "SELECT count(*) FROM fenceguard_lease"};
  count.bind().step();
  return count.integer(0);
}

// What crashed holders left behind is no lease, and is passed over once: by parts of a bounded size.
TEST(LeaseTable, AListingRemovesTheExpiredRowsThatItMeets) {
  Database database{":memory:", Database::Mode::create};
  install(database.handle());
  execute(database.handle(),
          "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) "
          "INSERT INTO fenceguard_lease SELECT printf('b/%04d', i), i, 'h', 1, 'an earlier boot' FROM n");
  LeaseTable table{database.handle()};
  using std::chrono::minutes;
  for (const char* name : {"a", "b/0000", "b/1500x", "b/x", "c"})
    (void)table.acquire(Resource{name}, Holder{"h"}, minutes{1});
  std::vector<std::string> live;
  int parts = 0;
  FenceListing listing{.prefix = "b/", .after = {}, .limit = 10};
  do {
    ++parts;
    auto part = table.list(listing);
    EXPECT_FALSE(part.page.has_more);
    for (const auto& lease : part.page.entries) live.push_back(lease.claim.resource.name());
    listing.after = std::move(part.next);
  } while (!listing.after.empty());
  EXPECT_EQ(live, (std::vector<std::string>{"b/0000", "b/1500x", "b/x"}));
  EXPECT_EQ(parts, 3);
  EXPECT_EQ(rows_in(database.handle()), 5);
}

TEST(LeaseTable, ARowOfAnOlderVersionIsALeaseUntilItsTimeOfThisBoot) {
  Database database{":memory:", Database::Mode::create};
  install(database.handle());
  std::string boot_id;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot_id;
  const auto now = BootClock::now().time_since_epoch();
  const auto in_an_hour = std::chrono::floor<std::chrono::milliseconds>(now + std::chrono::hours{1}).count();
  Statement row{database.handle(), "INSERT INTO fenceguard_lease VALUES (?1, 7, 'h', ?2, ?3)"};
  row.bind(std::string_view{"held"}, in_an_hour, std::string_view{boot_id}).run();
  row.bind(std::string_view{"expired"}, std::int64_t{1}, std::string_view{boot_id}).run();
  LeaseTable table{database.handle()};
  ASSERT_TRUE(table.find(Resource{"held"}));
  EXPECT_LE(table.find(Resource{"held"})->remaining, std::chrono::hours{1});
  EXPECT_FALSE(table.find(Resource{"expired"}));
}

TEST(LeaseTable, AListingEndsWithTheFirstLeaseBeyondItsPage) {
  Database database{":memory:", Database::Mode::create};
  install(database.handle());
  LeaseTable table{database.handle()};
  for (const char* name : {"a", "b", "c"})
    (void)table.acquire(Resource{name}, Holder{"h"}, std::chrono::minutes{1});
  execute(database.handle(), "INSERT INTO fenceguard_lease VALUES ('d', 9, 'h', 1, 'an earlier boot')");
  const auto part = table.list({.prefix = {}, .after = {}, .limit = 2});
  EXPECT_EQ(part.page.entries.size(), 2U);
  EXPECT_TRUE(part.page.has_more);
  EXPECT_TRUE(part.next.empty());
  EXPECT_EQ(rows_in(database.handle()), 4);
}

}  // namespace
}  // namespace fenceguard::sqlite
