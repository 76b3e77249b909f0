// How waiting goes: woken by a release, ended by a stop request, with one listening connection and without
// polling.

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

// How many sessions of the database say that they listen.
std::string listeners(const Database& database) {
  return database.ask(
      "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE "
      "'LISTEN%'");
}

std::string waiting_at_locks(const Database& database) {
  return database.ask(
      "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
      "wait_event_type = 'Lock'");
}

class Waiting : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<TokenSource> open() { return postgres::open_source(database_.url(GetParam())); }
  [[nodiscard]] bool is_by_ttl() const { return std::string{GetParam()}.empty(); }
  // So many threads wait.
  bool are_waiting(const std::string& count) {
    return eventually(
        [&] { return is_by_ttl() ? listeners(database_) == "1" : waiting_at_locks(database_) == count; });
  }
  // The waiter asks once more when it listens; an ask on its way could be answered behind a later release.
  bool are_quiet() {
    return !is_by_ttl() || eventually([&] {
      return database_.ask(
                 "SELECT count(*) FROM pg_stat_activity listener JOIN pg_stat_activity asker USING (datname, "
                 "application_name) WHERE datname = current_database() AND application_name = 'fenceguard' "
                 "AND listener.query LIKE 'LISTEN%' AND asker.query NOT LIKE 'LISTEN%' AND asker.state = "
                 "'idle' AND asker.query_start > listener.state_change") == "1";
    });
  }
  const Database database_;
};

TEST_P(Waiting, AReleaseWakesTheWaiterLongBeforeTheTimeToLiveIsOver) {
  const auto here = open();
  const auto there = open();
  const auto grant = std::get<Grant>(here->try_acquire(r, a, ttl));
  std::optional<Grant> next;
  std::jthread waiter{[&] { next = there->wait_acquire(r, Holder{"b"}, {.ttl = ttl, .wait = ttl}); }};
  ASSERT_TRUE(are_waiting("1"));
  ASSERT_TRUE(are_quiet());
  const auto begin = BootClock::now();
  EXPECT_EQ(here->release(grant.claim), Release::released);
  waiter.join();
  EXPECT_LT(BootClock::now() - begin, ttl / 3);
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, grant.claim.token);
  // The term of the lease counts from its grant, not from when the wait began.
  EXPECT_GE(next->asked_at, begin);
}

TEST_P(Waiting, AnEndWakesTheWaiterToo) {
  const auto here = open();
  const auto there = open();
  (void)here->try_acquire(r, a, ttl);
  std::optional<Grant> next;
  std::jthread waiter{[&] { next = there->wait_acquire(r, Holder{"b"}, {.ttl = ttl, .wait = ttl}); }};
  ASSERT_TRUE(are_waiting("1"));
  EXPECT_EQ(open()->end(r), Release::released);
  waiter.join();
  EXPECT_TRUE(next);
}

TEST_P(Waiting, AStopEndsAWaitWithinAMomentAndLeavesNothingBehind) {
  const auto here = open();
  const auto there = open();
  (void)here->try_acquire(r, a, ttl);
  std::stop_source stop;
  std::optional<Grant> next;
  std::jthread waiter{[&] {
    next = there->wait_acquire(r, Holder{"b"},
                               {.ttl = ttl, .wait = ttl, .holder = {}, .stop = stop.get_token()});
  }};
  ASSERT_TRUE(are_waiting("1"));
  const auto begin = BootClock::now();
  stop.request_stop();
  waiter.join();
  EXPECT_LT(BootClock::now() - begin, ttl / 3);
  EXPECT_FALSE(next);
  EXPECT_TRUE(eventually([&] { return waiting_at_locks(database_) == "0"; }));
}

TEST_P(Waiting, AWaitEndsAtItsDeadline) {
  const auto here = open();
  const auto there = open();
  (void)here->try_acquire(r, a, ttl);
  const auto begin = BootClock::now();
  EXPECT_FALSE(there->wait_acquire(r, Holder{"b"}, {.ttl = ttl, .wait = Ms{300}}));
  EXPECT_GE(BootClock::now() - begin, Ms{300});
  EXPECT_LT(BootClock::now() - begin, ttl / 3);
}

INSTANTIATE_TEST_SUITE_P(Postgres, Waiting, testing::Values("", "?lock=row", "?lock=advisory"));

// Twenty threads wait. There is one connection that listens, nobody asks in the meantime, and each gets its
// turn.
TEST(WaitingByTtl, ManyThreadsShareOneConnectionAndDoNotPoll) {
  constexpr int waiters = 20;
  const Database database;
  const auto here = postgres::open_source(database.url());
  const auto there = postgres::open_source(database.url());
  const auto grant = std::get<Grant>(here->try_acquire(r, a, ttl));
  std::atomic<int> granted{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < waiters; ++i) {
    threads.emplace_back([&] {
      const auto mine = there->wait_acquire(r, Holder::random(), {.ttl = ttl, .wait = ttl});
      if (mine && there->release(mine->claim) == Release::released) ++granted;
    });
  }
  const auto transactions = [&] {
    return std::stoll(database.ask(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"));
  };
  ASSERT_TRUE(eventually([&] { return listeners(database) == "1"; }));
  // Until everybody waits, the count moves; a poll of 50 ms would make it move by 400 in a second.
  ASSERT_TRUE(eventually([&] {
    const auto before = transactions();
    std::this_thread::sleep_for(Ms{1'000});
    return transactions() - before < 40;
  }));
  EXPECT_EQ(listeners(database), "1");
  here->release(grant.claim);
  threads.clear();
  EXPECT_EQ(granted, waiters);
}

// Rows of other leases are locked by a session that goes nowhere, and more ask for them than the source has
// calls. What is asked gives up after five seconds by itself, so a round counts in which none did before the
// renewal was answered.
TEST(WaitingByTtl, ALeaseIsRenewedWhileAsksForOthersHang) {
  constexpr int asks = 16;
  const Database database;
  const auto source = postgres::open_source(database.url());
  const auto mine = std::get<Grant>(source->try_acquire(r, a, ttl)).claim;
  for (int i = 0; i < asks; ++i)
    (void)source->try_acquire(Resource{fmt::format("other/{}", i)}, Holder{"b"}, ttl);
  pqxx::connection hanging{
      fmt::format("host=127.0.0.1 port={} user=postgres dbname={}", server_port(), database.name())};
  pqxx::nontransaction session{hanging};
  session.exec("BEGIN; SELECT FROM fenceguard.leases WHERE resource LIKE 'other/%' FOR UPDATE");
  bool is_renewed_first = false;
  for (int round = 0; round < 5 && !is_renewed_first; ++round) {
    std::atomic<int> ended{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < asks; ++i) {
      threads.emplace_back([&, i] {
        EXPECT_THROW((void)source->try_acquire(Resource{fmt::format("other/{}", i)}, Holder{"b"}, ttl),
                     Error);
        ++ended;
      });
    }
    ASSERT_TRUE(eventually([&] { return std::stoi(waiting_at_locks(database)) >= 8 || ended > 0; }));
    const auto renewal = source->renew(mine, ttl);
    is_renewed_first = ended == 0;
    EXPECT_EQ(renewal, Renewal::renewed);
  }
  EXPECT_TRUE(is_renewed_first);
}

// The listening connection is lost: a release in the gap is not missed for longer than it takes to listen
// again.
TEST(WaitingByTtl, AListeningConnectionThatIsLostIsReplaced) {
  const Database database;
  const auto here = postgres::open_source(database.url());
  const auto there = postgres::open_source(database.url());
  const auto grant = std::get<Grant>(here->try_acquire(r, a, ttl));
  std::optional<Grant> next;
  std::jthread waiter{[&] { next = there->wait_acquire(r, Holder{"b"}, {.ttl = ttl, .wait = ttl}); }};
  ASSERT_TRUE(eventually([&] { return listeners(database) == "1"; }));
  database.run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query "
      "LIKE 'LISTEN%'");
  const auto begin = BootClock::now();
  here->release(grant.claim);
  waiter.join();
  EXPECT_TRUE(next);
  EXPECT_LT(BootClock::now() - begin, Ms{20'000});
}

}  // namespace
}  // namespace fenceguard::test
