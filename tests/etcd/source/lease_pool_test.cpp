// The etcd lease of a released grant, which is kept for the next grant of the same process.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>

#include "adapters/etcd/lock/lease_pool.hpp"
#include "tests/etcd/source/requests.hpp"
#include "tests/etcd/source/source.hpp"
#include "tests/process/proxy.hpp"

namespace fenceguard::test {
namespace {

using etcd::LeasePool;
using std::chrono::seconds;

class LeasePoolTest : public testing::Test {
 protected:
  LeasePoolTest() { requests_.set_proxy(proxy_); }

  [[nodiscard]] std::unique_ptr<TokenSource> open_far(const std::string& rest = "?timeout=20s") const {
    return open(cluster_.url_of_port(proxy_.port(), rest));
  }
  [[nodiscard]] std::int64_t lease_of_lock() { return keys_under(client_, lock + "/").at(0).lease; }

  EtcdCluster cluster_{1};
  etcd::Client client_{cluster_.url()};
  Requests requests_;
  Proxy proxy_{cluster_.member(0).port(), requests_.filter()};
};

TEST_F(LeasePoolTest, TheLeaseOfAReleasedGrantServesTheNextOneWithAHigherToken) {
  const auto source = open_far();
  std::int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    const auto grant = take(*source, "holder" + std::to_string(i % 2));
    EXPECT_TRUE(grant.is_new);
    EXPECT_GT(grant.claim.token.value(), last);
    last = grant.claim.token.value();
    EXPECT_EQ(keys_under(client_, lock + "/").at(0).create_revision, last);
    EXPECT_EQ(source->release(grant.claim), Release::released);
    EXPECT_EQ(source->release(grant.claim), Release::not_held);
  }
  EXPECT_EQ(requests_.count("/v3/lease/grant"), 1);
  EXPECT_EQ(requests_.count("/v3/lease/keepalive"), 4);
  EXPECT_EQ(requests_.count("/v3/lease/revoke"), 0);
}

TEST_F(LeasePoolTest, AGrantBeginsOnTheFullTimeToLive) {
  constexpr Ms ttl{6'000};
  const auto source = open(cluster_.url());
  const auto first = take(*source, "holder", ttl);
  const auto lease = lease_of_lock();
  source->release(first.claim);
  wait_until([&] { return client_.time_to_live(lease).ttl <= Ms{4'000}; });
  const auto since = BootClock::now();
  const auto second = take(*source, "holder", ttl);
  EXPECT_GE(second.ttl, ttl);
  EXPECT_GE(second.asked_at, since);
  // What is left is told in whole seconds.
  EXPECT_GE(client_.time_to_live(lease_of_lock()).ttl + seconds{1} + (BootClock::now() - since), ttl);
}

TEST_F(LeasePoolTest, ALeaseThatIsGoneIsReplaced) {
  const auto source = open(cluster_.url());
  auto grant = take(*source, "holder");
  for (int i = 0; i < 3; ++i) {
    const auto lease = lease_of_lock();
    source->release(grant.claim);
    EXPECT_TRUE(client_.revoke(lease));
    const auto next = take(*source, "holder");
    EXPECT_GT(next.claim.token, grant.claim.token);
    EXPECT_NE(lease_of_lock(), lease);
    EXPECT_EQ(source->renew(next.claim, long_ttl), Renewal::renewed);
    grant = next;
  }
}

// The process stood still between the two, say.
TEST_F(LeasePoolTest, ALeaseThatRunsOutBetweenItsRenewalAndThePutIsReplaced) {
  const auto source = open_far();
  const auto first = take(*source, "holder");
  const auto lease = lease_of_lock();
  source->release(first.claim);
  requests_.at_next("/v3/kv/txn", [&] {
    EXPECT_TRUE(client_.revoke(lease));
    return Requests::Then::pass;
  });
  const auto next = take(*source, "holder");
  EXPECT_GT(next.claim.token, first.claim.token);
  EXPECT_NE(lease_of_lock(), lease);
  EXPECT_EQ(source->renew(next.claim, long_ttl), Renewal::renewed);
}

// Nothing is known of the put: a key of that lease may come into being late. The lease is ended, and so no
// key of it can.
TEST_F(LeasePoolTest, ALeaseUnderWhichThePutHasNoAnswerIsEnded) {
  const auto source = open_far();
  const auto first = take(*source, "holder");
  const auto lease = lease_of_lock();
  source->release(first.claim);
  requests_.at_next_answer("/v3/kv/txn", [] { return Requests::Then::cut; });
  const auto next = take(*source, "holder");
  EXPECT_GT(next.claim.token, first.claim.token);
  EXPECT_LE(client_.time_to_live(lease).ttl, Ms{0});
  EXPECT_EQ(keys_under(client_, lock + "/").size(), 1U);
}

// As after the restore of a snapshot. The token of then must not be granted again.
TEST_F(LeasePoolTest, AKeyThatCameBackUnderTheLeaseIsNotTakenForTheOwnOne) {
  const auto source = open(cluster_.url());
  for (const bool waits : {false, true}) {
    const auto first = take(*source, "holder");
    const auto key = keys_under(client_, lock + "/").at(0);
    source->release(first.claim);
    EXPECT_TRUE(client_.txn({{}, {etcd::put(key.key, key.value, key.lease)}}).succeeded);
    const auto old = keys_under(client_, lock + "/").at(0).create_revision;
    const auto next = source->wait_acquire(resource, Holder{waits ? "other" : "holder"},
                                           {.ttl = long_ttl, .wait = waits ? limit : Ms{0}});
    ASSERT_TRUE(next);
    EXPECT_GT(next->claim.token.value(), old);
    EXPECT_EQ(keys_under(client_, lock + "/").size(), 1U);
    EXPECT_EQ(source->release(next->claim), Release::released);
  }
}

TEST_F(LeasePoolTest, ALeaseOfAnotherTimeToLiveIsNotTaken) {
  const auto source = open(cluster_.url());
  const auto first = take(*source, "holder", Ms{50'000});
  const auto lease = lease_of_lock();
  source->release(first.claim);
  const auto longer = take(*source, "holder", Ms{51'000});
  EXPECT_NE(lease_of_lock(), lease);
  EXPECT_GE(longer.ttl, Ms{51'000});
  source->release(longer.claim);
  (void)take(*source, "holder", Ms{49'500});  // fifty whole seconds
  EXPECT_EQ(lease_of_lock(), lease);
}

TEST_F(LeasePoolTest, NoMoreLeasesAreKeptThanTheLimitAndNoneThatLivesForLong) {
  const auto source = open_far();
  std::vector<Claim> claims;
  constexpr int more = 3;
  for (std::size_t i = 0; i < LeasePool::leases_max + more; ++i) {
    auto answer = source->try_acquire(Resource{"many/" + std::to_string(i)}, Holder{"h"}, long_ttl);
    claims.push_back(std::get<Grant>(answer).claim);
  }
  for (const auto& claim : claims) EXPECT_EQ(source->release(claim), Release::released);
  EXPECT_EQ(requests_.count("/v3/lease/revoke"), more);
  const auto lasting = take(*source, "holder", LeasePool::ttl_max + seconds{1});
  const auto lease = lease_of_lock();
  source->release(lasting.claim);
  EXPECT_EQ(requests_.count("/v3/lease/revoke"), more + 1);
  EXPECT_FALSE(client_.revoke(lease));
}

TEST(LeasePoolAlone, GivesAForkedProcessNothing) {
  LeasePool pool;
  ASSERT_TRUE(pool.put({7, seconds{10}, seconds{10}, BootClock::now(), true}));
  const auto child = ::fork();
  if (child == 0) ::_exit(pool.take(seconds{10}) ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(pool.take(seconds{10}));
}

TEST(LeasePoolAlone, KeepsNoLeaseThatIsOldOrForeign) {
  LeasePool pool;
  etcd::EtcdLease lease{7, Ms{5'000}, seconds{5}, BootClock::now(), true};
  EXPECT_TRUE(pool.put(lease));
  EXPECT_EQ(pool.take(Ms{4'001})->id, 7);
  EXPECT_FALSE(pool.take(Ms{4'001}));
  lease.made_at -= LeasePool::age_max;
  EXPECT_FALSE(pool.put(lease));
  EXPECT_FALSE(pool.put({8, Ms{5'000}, {}, BootClock::now(), false}));
}

// By a process that did not make the lease.
class LateRelease : public LeasePoolTest, public testing::WithParamInterface<bool> {
 protected:
  // Another process that knows the claim, by having asked for it or by being told.
  [[nodiscard]] std::unique_ptr<TokenSource> open_knowing(const Grant& grant) {
    auto far = open_far();
    if (GetParam()) {
      EXPECT_EQ(take(*far, grant.claim.holder.id()).claim, grant.claim);
    }
    return far;
  }
  // That the later grant lives by the lease of the earlier one, and goes on.
  void expect_lives(const Grant& grant, std::int64_t lease) {
    EXPECT_EQ(lease_of_lock(), lease);
    EXPECT_EQ(near_->renew(grant.claim, long_ttl), Renewal::renewed);
    EXPECT_EQ(near_->show(resource)->claim, grant.claim);
  }

  std::unique_ptr<TokenSource> near_ = open(cluster_.url());
};

TEST_P(LateRelease, DoesNotEndALaterGrantByTheSameLease) {
  const auto first = take(*near_, "holder");
  const auto lease = lease_of_lock();
  const auto far = open_knowing(first);
  EXPECT_EQ(near_->release(first.claim), Release::released);
  const auto second = take(*near_, "holder");
  EXPECT_EQ(far->release(first.claim), Release::not_held);
  EXPECT_EQ(far->release(first.claim), Release::not_held);
  expect_lives(second, lease);
}

// The far release begins first. While its request is under way the near one frees the lock, and takes it
// anew by the same lease; the request arrives after that, or is lost, or its answer is, and then either the
// server can be asked again or not.
TEST_P(LateRelease, OvertakenByTheNextGrantDoesNotEndIt) {
  for (const auto then : {Requests::Then::pass, Requests::Then::cut, Requests::Then::close}) {
    for (const bool is_answer_lost : {false, true}) {
      const auto first = take(*near_, "holder");
      const auto lease = lease_of_lock();
      const auto far = open_knowing(first);
      std::promise<Grant> taken;
      auto second = taken.get_future();
      const auto overtake = [&] {
        EXPECT_EQ(near_->release(first.claim), Release::released);
        taken.set_value(take(*near_, "holder"));
        return is_answer_lost ? Requests::Then::pass : then;
      };
      requests_.at_next_removal(overtake);
      if (is_answer_lost) requests_.at_answer_of_next_removal([&] { return then; });
      try {
        EXPECT_EQ(far->release(first.claim), Release::not_held);
      } catch (const Error&) {
        EXPECT_NE(then, Requests::Then::pass);
      }
      ASSERT_EQ(second.wait_for(limit), std::future_status::ready);
      const auto grant = second.get();
      expect_lives(grant, lease);
      EXPECT_EQ(near_->release(grant.claim), Release::released);
      proxy_.set(Proxy::Way::open);
      requests_.forget();
    }
  }
}

// The far release takes effect, the near one does not, and nobody's lease is ended.
TEST_P(LateRelease, ByAnotherProcessFreesTheLockAndKeepsNothing) {
  const auto first = take(*near_, "holder");
  const auto lease = lease_of_lock();
  const auto far = open_knowing(first);
  EXPECT_EQ(far->release(first.claim), Release::released);
  EXPECT_EQ(near_->release(first.claim), Release::not_held);
  EXPECT_EQ(requests_.count("/v3/lease/revoke"), 0);
  const auto second = take(*near_, "holder");
  EXPECT_NE(lease_of_lock(), lease);
  EXPECT_GT(second.claim.token, first.claim.token);
}

INSTANTIATE_TEST_SUITE_P(Etcd, LateRelease, testing::Bool(),
                         [](const auto& by) { return by.param ? "after_re_entry" : "by_claim_alone"; });

// Two threads of one process release each claim while a third takes the lock again, and every few answers
// are lost. What a releasing thread does about its lost answer must not meet the lease of the next grant.
TEST_F(LeasePoolTest, ReleasesOfOneClaimSideBySideDoNotEndTheNextGrant) {
  std::atomic<int> answers{0};
  Proxy lossy{cluster_.member(0).port(),
              [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                const bool is_lost = direction == Proxy::Direction::to_client && ++answers % 7 == 0;
                return is_lost ? 0 : piece.size();
              }};
  const auto source = open(cluster_.url_of_port(lossy.port(), "?timeout=20s"));
  const auto near = open(cluster_.url());
  int compared = 0;
  const auto attempt = [&](auto call) {
    try {
      call();
      return true;
    } catch (const Unavailable&) {
    } catch (const OutcomeUnknown&) {
    }
    return false;
  };
  for (int i = 0; i < scaled(100); ++i) {
    std::optional<Grant> first, second;
    if (!attempt([&] { first = source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl}); }) ||
        !first) {
      (void)near->end(resource);
      continue;
    }
    {
      std::jthread one{[&] { attempt([&] { (void)source->release(first->claim); }); }};
      std::jthread other{[&] { attempt([&] { (void)source->release(first->claim); }); }};
      attempt([&] {
        second = source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = Ms{5'000}});
      });
    }
    if (second) {
      ++compared;
      EXPECT_EQ(near->renew(second->claim, long_ttl), Renewal::renewed);
    }
    (void)near->end(resource);
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace fenceguard::test
