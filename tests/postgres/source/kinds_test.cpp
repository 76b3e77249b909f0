// The three kinds of lock: what ends each, and that they exclude each other.

#include <gtest/gtest.h>

#include <atomic>

#include "adapters/postgres/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "tests/postgres/source/server.hpp"

namespace fenceguard::test {
namespace {

using Ms = std::chrono::milliseconds;
constexpr Ms ttl{60'000};
constexpr const char* kinds[]{"", "?lock=row", "?lock=advisory"};

const Resource r{"accounts/42"};
const Holder a{"a"};
const Holder b{"b"};

std::string keeper_of(const Database& database) {
  return database.ask("SELECT keeper_pid FROM fenceguard.leases WHERE resource = 'accounts/42'");
}

void terminate(const Database& database, const std::string& pid) {
  database.run("SELECT pg_terminate_backend(" + pid + ")");
}

bool is_held(TokenSource& source, const Holder& holder) {
  return std::holds_alternative<LockBusy>(source.try_acquire(r, holder, ttl));
}

class SessionLease : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<TokenSource> open() { return postgres::open_source(database_.url(GetParam())); }
  const Database database_;
};

TEST_P(SessionLease, AKeeperThatIsKilledFreesTheLockAndTheLossIsSignalled) {
  const auto here = open();
  const auto there = open();
  auto lease = here->acquire(r, {.ttl = Ms{5'000}, .holder = a});
  ASSERT_TRUE(lease);
  ASSERT_TRUE(is_held(*there, b));
  terminate(database_, keeper_of(database_));
  const auto next = there->wait_acquire(r, b, {.ttl = ttl, .wait = ttl});
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, lease->claim().token);
  EXPECT_TRUE(eventually([&] { return lease->lost().stop_requested(); }));
  EXPECT_EQ(lease->release(), Release::not_held);
  EXPECT_EQ(there->renew(next->claim, ttl), Renewal::renewed);
}

// What shows it: libpqxx 6 would open a lost connection again, and the new session would answer.
TEST_P(SessionLease, ALostSessionIsNeverTakenForTheOneThatHeldTheLock) {
  const auto here = open();
  const auto grant = std::get<Grant>(here->try_acquire(r, a, ttl));
  terminate(database_, keeper_of(database_));
  EXPECT_EQ(here->renew(grant.claim, ttl), Renewal::lost);
  EXPECT_EQ(here->renew(grant.claim, ttl), Renewal::lost);
  EXPECT_EQ(here->release(grant.claim), Release::not_held);
  const auto again = std::get<Grant>(here->try_acquire(r, a, ttl));
  EXPECT_TRUE(again.is_new);
  EXPECT_GT(again.claim.token, grant.claim.token);
}

TEST_P(SessionLease, ALeaseWithoutRenewalEndsWithItsTimeToLive) {
  const auto here = open();
  const auto there = open();
  const auto grant = std::get<Grant>(here->try_acquire(r, a, Ms{300}));
  const auto begin = BootClock::now();
  const auto next = there->wait_acquire(r, b, {.ttl = ttl, .wait = ttl});
  ASSERT_TRUE(next);
  EXPECT_LT(BootClock::now() - begin, Ms{10'000});
  EXPECT_EQ(here->renew(grant.claim, ttl), Renewal::lost);
  EXPECT_EQ(here->release(grant.claim), Release::not_held);
}

// Two threads ask for one holder: who waits gets the token that the other was granted.
TEST_P(SessionLease, AHolderThatAsksTwiceAtOnceGetsOneTokenTwice) {
  const auto here = open();
  const auto there = open();
  const auto first = std::get<Grant>(there->try_acquire(r, b, ttl));
  std::optional<Grant> grants[2];
  {
    std::vector<std::jthread> threads;
    for (auto& grant : grants) {
      threads.emplace_back([&] { grant = here->wait_acquire(r, a, {.ttl = ttl, .wait = ttl}); });
    }
    EXPECT_TRUE(eventually([&] {
      return database_.ask(
                 "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
                 "current_database()") == "2";
    }));
    there->release(first.claim);
  }
  ASSERT_TRUE(grants[0] && grants[1]);
  EXPECT_EQ(grants[0]->claim, grants[1]->claim);
  EXPECT_NE(grants[0]->is_new, grants[1]->is_new);
  EXPECT_EQ(here->release(grants[0]->claim), Release::released);
}

TEST_P(SessionLease, AReleaseElsewhereEndsTheLeaseAtTheNextRenewal) {
  const auto here = open();
  const auto grant = std::get<Grant>(here->try_acquire(r, a, ttl));
  EXPECT_EQ(database_.ask(
                fmt::format("SELECT fenceguard.release('accounts/42', {}, 'a')", grant.claim.token.value())),
            "t");
  EXPECT_EQ(here->renew(grant.claim, ttl), Renewal::lost);
  EXPECT_FALSE(is_held(*open(), b));
}

TEST_P(SessionLease, NothingIsLeftOnTheServerWhenTheSourceIsGone) {
  {
    const auto here = open();
    (void)here->try_acquire(r, a, ttl);
  }
  EXPECT_TRUE(eventually([&] {
    return database_.ask(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
               "pid <> pg_backend_pid()") == "0";
  }));
  EXPECT_EQ(database_.ask("SELECT count(*) FROM fenceguard.lease"), "0");
}

INSTANTIATE_TEST_SUITE_P(Postgres, SessionLease, testing::Values("?lock=row", "?lock=advisory"));

class TwoKinds : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(TwoKinds, ExcludeEachOtherAndTokensRiseAcrossThem) {
  const Database database;
  const auto first = postgres::open_source(database.url(std::get<0>(GetParam())));
  const auto second = postgres::open_source(database.url(std::get<1>(GetParam())));
  const auto grant = std::get<Grant>(first->try_acquire(r, a, ttl));
  EXPECT_TRUE(is_held(*second, b));
  // The same holder by another kind of lock is somebody else; by TTL it has the same lease in every process.
  const bool is_one_lease = !first->lives_by_connection() && !second->lives_by_connection();
  EXPECT_NE(is_held(*second, a), is_one_lease);
  std::optional<Grant> next;
  std::atomic<bool> is_asking{false};
  std::jthread waiter{[&] {
    is_asking = true;
    next = second->wait_acquire(r, b, {.ttl = ttl, .wait = Ms{30'000}});
  }};
  EXPECT_TRUE(eventually([&] { return is_asking.load(); }));
  EXPECT_EQ(first->release(grant.claim), Release::released);
  waiter.join();
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, grant.claim.token);
  EXPECT_TRUE(is_held(*first, a));
}

INSTANTIATE_TEST_SUITE_P(Postgres, TwoKinds,
                         testing::Combine(testing::ValuesIn(kinds), testing::ValuesIn(kinds)));

}  // namespace
}  // namespace fenceguard::test
