// Each kind of lock through a real PgBouncer in transaction mode, where a session is not the client's own.

#include "tests/postgres/source/pgbouncer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "adapters/postgres/token_source.hpp"
#include "guard/error.hpp"
#include "tests/postgres/source/server.hpp"

namespace fenceguard::test {
namespace {

using Ms = std::chrono::milliseconds;
constexpr Ms ttl{60'000};

const Resource r{"accounts/42"};
const Holder a{"a"};
const Holder b{"b"};

class Pooled : public testing::Test {
 protected:
  std::unique_ptr<TokenSource> open(const std::string& parameters = "") {
    return postgres::open_source(database_.url(parameters, "postgres", pgbouncer_.port()));
  }
  std::unique_ptr<TokenSource> open_directly(const std::string& parameters = "") {
    return postgres::open_source(database_.url(parameters));
  }
  const Database database_;
  PgBouncer pgbouncer_{10};
};

TEST_F(Pooled, LeasesByTtlWorkAsEver) {
  const auto here = open();
  const auto there = open();
  std::int64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const auto grant = std::get<Grant>(here->try_acquire(r, a, ttl));
    EXPECT_GT(grant.claim.token.value(), last);
    last = grant.claim.token.value();
    EXPECT_TRUE(std::holds_alternative<LockBusy>(there->try_acquire(r, b, ttl)));
    EXPECT_EQ(there->renew(grant.claim, ttl), Renewal::renewed);
    EXPECT_EQ(here->release(grant.claim), Release::released);
  }
}

// A release is not heard, so the waiter asks again when the lease that it met would be over.
TEST_F(Pooled, WaiterWithoutListenGetsTheLockAfterTheTimeToLive) {
  const auto here = open();
  const auto there = open();
  const auto grant = std::get<Grant>(here->try_acquire(r, a, Ms{1'500}));
  std::optional<Grant> next;
  std::atomic<bool> is_asking{false};
  const auto begin = BootClock::now();
  std::jthread waiter{[&] {
    is_asking = true;
    next = there->wait_acquire(r, b, {.ttl = ttl, .wait = Ms{20'000}});
  }};
  EXPECT_TRUE(eventually([&] { return is_asking.load(); }));
  waiter.join();
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, grant.claim.token);
  EXPECT_LT(BootClock::now() - begin, Ms{10'000});
  EXPECT_EQ(database_.ask("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = "
                          "current_database()"),
            "0");
}

TEST_F(Pooled, AHeldRowPinsAConnectionOfThePoolAndWorks) {
  const auto here = open("?lock=row");
  const auto there = open("?lock=row");
  const auto directly = open_directly("?lock=row");
  const auto grant = std::get<Grant>(here->try_acquire(r, a, ttl));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(here->renew(grant.claim, ttl), Renewal::renewed);
    EXPECT_TRUE(std::holds_alternative<LockBusy>(there->try_acquire(r, b, ttl)));
    EXPECT_TRUE(std::holds_alternative<LockBusy>(directly->try_acquire(r, b, ttl)));
  }
  std::optional<Grant> next;
  std::jthread waiter{[&] { next = there->wait_acquire(r, b, {.ttl = ttl, .wait = ttl}); }};
  ASSERT_TRUE(eventually([&] {
    return database_.ask(
               "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
               "current_database()") == "1";
  }));
  EXPECT_EQ(here->release(grant.claim), Release::released);
  waiter.join();
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, grant.claim.token);
  // An end reaches the session at the server, through which the pooler and so the client are told.
  EXPECT_EQ(directly->end(r), Release::released);
  EXPECT_EQ(there->renew(next->claim, ttl), Renewal::lost);
}

TEST_F(Pooled, AStopEndsAWaitForARow) {
  const auto here = open("?lock=row");
  const auto there = open("?lock=row");
  (void)here->try_acquire(r, a, ttl);
  std::stop_source stop;
  std::optional<Grant> next;
  std::jthread waiter{[&] {
    next = there->wait_acquire(r, b, {.ttl = ttl, .wait = ttl, .holder = {}, .stop = stop.get_token()});
  }};
  const auto waiting = [&] {
    return database_.ask(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
        "current_database()");
  };
  ASSERT_TRUE(eventually([&] { return waiting() == "1"; }));
  const auto begin = BootClock::now();
  stop.request_stop();
  waiter.join();
  EXPECT_LT(BootClock::now() - begin, ttl / 3);
  EXPECT_FALSE(next);
  EXPECT_TRUE(eventually([&] { return waiting() == "0"; }));
}

// What a keeper set for its transaction does not stay with a connection that others use next.
TEST_F(Pooled, NothingOfAKeeperIsLeftInThePool) {
  {
    const auto here = open("?lock=row");
    const auto grant = std::get<Grant>(here->try_acquire(r, a, ttl));
    here->release(grant.claim);
  }
  pqxx::connection connection{
      fmt::format("host=127.0.0.1 port={} user=postgres dbname={}", pgbouncer_.port(), database_.name())};
  pqxx::nontransaction tx{connection};
  EXPECT_EQ(
      tx.exec("SELECT count(*) FROM pg_settings WHERE source = 'session' AND name IN ('lock_timeout', "
              "'statement_timeout', 'idle_in_transaction_session_timeout', 'tcp_keepalives_idle')")[0][0]
          .as<int>(),
      0);
}

TEST_F(Pooled, AnAdvisoryLockIsRefusedInWords) {
  try {
    (void)open("?lock=advisory");
    FAIL() << "it was not refused";
  } catch (const InvalidInput& fault) {
    EXPECT_THAT(fault.what(), testing::HasSubstr("pooler"));
    EXPECT_THAT(fault.what(), testing::HasSubstr("?lock=row"));
  }
}

}  // namespace
}  // namespace fenceguard::test
