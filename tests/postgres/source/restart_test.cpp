// The server crashes and comes back.

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>

#include "adapters/postgres/token_source.hpp"
#include "guard/error.hpp"
#include "guard/lease.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/postgres/source/server.hpp"

namespace fenceguard::test {
namespace {

using Ms = std::chrono::milliseconds;
constexpr Ms ttl{60'000};

const Resource r{"accounts/42"};
const Holder a{"a"};
const Holder b{"b"};

class Restart : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    database_ = std::make_unique<Database>();
    source_ = open();
  }
  std::unique_ptr<TokenSource> open() { return postgres::open_source(database_->url(GetParam())); }
  std::unique_ptr<Database> database_;
  std::unique_ptr<TokenSource> source_;
};

TEST_P(Restart, LeasesByTtlAndTheCounterSurviveACrashAndKeptLeasesAreLost) {
  const auto grant = std::get<Grant>(source_->try_acquire(r, a, ttl));
  source_->raise(r, Token{1'000'000});
  const auto drawn = source_->draw();
  move_server("restart immediate");
  if (source_->lives_by_connection()) {
    EXPECT_EQ(source_->renew(grant.claim, ttl), Renewal::lost);
    EXPECT_FALSE(source_->show(r));
  } else {
    EXPECT_EQ(source_->renew(grant.claim, ttl), Renewal::renewed);
    EXPECT_EQ(source_->show(r)->claim, grant.claim);
    EXPECT_EQ(source_->release(grant.claim), Release::released);
  }
  EXPECT_GT(std::get<Grant>(source_->try_acquire(r, b, ttl)).claim.token, drawn);
}

TEST_P(Restart, AServerThatIsAwayIsUnavailableAndItsReturnIsNoticed) {
  const auto claim = std::get<Grant>(source_->try_acquire(r, a, ttl)).claim;
  EXPECT_EQ(source_->release(claim), Release::released);
  move_server("stop fast");
  EXPECT_THROW((void)source_->try_acquire(r, a, ttl), Unavailable);
  EXPECT_THROW((void)source_->draw(), Unavailable);
  EXPECT_THROW((void)source_->wait_acquire(r, a, {.ttl = ttl, .wait = ttl}), Unavailable);
  move_server("start");
  EXPECT_GT(std::get<Grant>(source_->try_acquire(r, a, ttl)).claim.token, claim.token);
}

TEST_P(Restart, AWaiterOutlastsACrash) {
  const auto holder = open();
  const auto grant = std::get<Grant>(holder->try_acquire(r, a, Ms{4'000}));
  std::optional<Grant> next;
  std::string fault;
  std::jthread waiter{[&] {
    try {
      next = source_->wait_acquire(r, b, {.ttl = ttl, .wait = ttl});
    } catch (const std::exception& error) {
      fault = error.what();
    }
  }};
  EXPECT_TRUE(eventually([&] {
    return database_->ask(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND (query LIKE "
               "'LISTEN%' OR wait_event_type = 'Lock')") == "1";
  }));
  move_server("restart immediate");
  waiter.join();
  EXPECT_EQ(fault, "");
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, grant.claim.token);
}

// Threads take and free locks while the server crashes again and again: no token is handed out twice, and
// those of one resource rise in the order in which they were.
TEST_P(Restart, NoTokenIsHandedOutTwiceAcrossManyCrashes) {
  constexpr int crashes = 4;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random{seed};
  std::atomic<bool> is_over{false};
  std::mutex mutex;
  std::set<std::int64_t> seen;
  std::atomic<int> repeated{0};
  std::atomic<int> sunk{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Resource resource{fmt::format("busy/{}", i)};
      std::int64_t last = 0;
      while (!is_over) {
        try {
          const auto answer = source_->try_acquire(resource, Holder::random(), Ms{500});
          const auto* grant = std::get_if<Grant>(&answer);
          if (grant == nullptr) continue;
          const auto token = grant->claim.token.value();
          if (token <= last) ++sunk;
          last = token;
          {
            const std::scoped_lock lock{mutex};
            if (!seen.insert(token).second) ++repeated;
          }
          source_->release(grant->claim);
        } catch (const Error&) {
          // Away, or unknown: the next one asks afresh.
        }
      }
    });
  }
  for (int crash = 0; crash < scaled(crashes); ++crash) {
    const auto enough = [&] {
      const std::scoped_lock lock{mutex};
      return seen.size();
    };
    const auto until = enough() + 20 + random() % 100;
    EXPECT_TRUE(eventually([&] { return enough() >= until; }));
    move_server("restart immediate");
  }
  is_over = true;
  threads.clear();
  EXPECT_EQ(repeated, 0);
  EXPECT_EQ(sunk, 0);
}

INSTANTIATE_TEST_SUITE_P(Postgres, Restart, testing::Values("", "?lock=row", "?lock=advisory"));

}  // namespace
}  // namespace fenceguard::test
