#include <algorithm>
#include <atomic>

#include "guard/judge.hpp"
#include "tests/etcd/source/source.hpp"
#include "tests/process/proxy.hpp"

namespace fenceguard::test {
namespace {

// A guard with nothing behind it.
class JudgingGuard {
 public:
  Verdict write(const Claim& claim) {
    const auto ruling = judge(view_, claim);
    if (ruling.changed) view_.record = ruling.fence;
    return ruling.verdict;
  }

 private:
  FenceView view_;
};

class Lost : public testing::Test {
 protected:
  // A lease whose connection goes this way counts as lost, and that before anybody else has the lock. Where
  // our own process stands still it is told later, but not each time.
  void expect_lost_before_others_have_it(Proxy::Way way) {
    bool was_in_time = false;
    for (int i = 0; i < 5 && !was_in_time && !HasFailure(); ++i) was_in_time = is_lost_in_time(way);
    EXPECT_TRUE(was_in_time);
  }

  bool is_lost_in_time(Proxy::Way way) {
    const auto lease = acquire_hastily(Ms{2'000});
    std::optional<Grant> next;
    bool was_lost = false;
    proxy_.set(way);
    std::jthread other{[&] {
      next = there_->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = limit});
      was_lost = lease->lost().stop_requested();
    }};
    wait_until([&] { return lease->lost().stop_requested(); });
    other.join();
    proxy_.set(Proxy::Way::open);
    EXPECT_TRUE(next);
    if (!next) return false;
    EXPECT_GT(next->claim.token, lease->claim().token);
    EXPECT_EQ(there_->release(next->claim), Release::released);
    return was_lost;
  }

  // By the source that soon gives a call up, which may be too soon for this one.
  std::optional<Lease> acquire_hastily(Ms ttl) {
    std::optional<Lease> lease;
    wait_until([&] {
      try {
        lease = hasty_->acquire(resource, {.ttl = ttl});
      } catch (const Error&) {
        // What may be left of it runs out.
      }
      return lease.has_value();
    });
    return lease;
  }

  EtcdCluster cluster_{1};
  Proxy proxy_{cluster_.member(0).port()};
  std::unique_ptr<TokenSource> hasty_ =
      open(cluster_.url_of_port(proxy_.port(), "?timeout=300ms&connect_timeout=300ms"));
  std::unique_ptr<TokenSource> here_ = open(cluster_.url_of_port(proxy_.port()));
  std::unique_ptr<TokenSource> there_ = open(cluster_.url());
  etcd::Client client_{cluster_.url()};
};

TEST_F(Lost, UnansweredKeepAlivesLoseALeaseBeforeOthersGetTheLock) {
  expect_lost_before_others_have_it(Proxy::Way::silent);
}

TEST_F(Lost, ALeaseWhoseConnectionIsCutIsLostBeforeOthersHaveTheLock) {
  expect_lost_before_others_have_it(Proxy::Way::closed);
}

TEST_F(Lost, ACutThatIsHealedInTimeLosesNothing) {
  const auto lease = here_->acquire(resource, {.ttl = long_ttl});
  ASSERT_TRUE(lease);
  proxy_.set(Proxy::Way::closed);
  EXPECT_THROW((void)here_->renew(lease->claim(), long_ttl), Error);
  proxy_.set(Proxy::Way::open);
  EXPECT_EQ(here_->renew(lease->claim(), long_ttl), Renewal::renewed);
  EXPECT_FALSE(lease->lost().stop_requested());
}

// etcd itself is stopped, and with it every lease: its answers come late, and count for nothing.
TEST_F(Lost, ALeaseWhoseMemberIsStoppedIsLost) {
  auto lease = here_->acquire(resource, {.ttl = Ms{5'000}});
  ASSERT_TRUE(lease);
  cluster_.member(0).pause();
  wait_until([&] { return lease->lost().stop_requested(); });
  cluster_.member(0).resume();
  cluster_.wait_until_serving();
  (void)lease->release();
  const auto next = there_->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = limit});
  ASSERT_TRUE(next);
  EXPECT_GT(next->claim.token, lease->claim().token);
}

// Most of a term at default settings, in which every renewal finds one member silent that is asked before the
// others.
void expect_kept_beside(EtcdCluster& cluster, std::size_t hung) {
  std::string hosts = "127.0.0.1:" + std::to_string(cluster.member(hung).port());
  for (std::size_t i = 1; i < cluster.size(); ++i)
    hosts += ",127.0.0.1:" + std::to_string(cluster.member((hung + i) % cluster.size()).port());
  const auto source = open("etcd://" + hosts);
  auto lease = source->acquire(resource, {.ttl = Ms{10'000}, .wait = limit});
  ASSERT_TRUE(lease);
  cluster.member(hung).pause();
  const auto deadline = BootClock::now() + Ms{12'000};
  while (BootClock::now() < deadline && !lease->lost().stop_requested()) std::this_thread::sleep_for(Ms{50});
  EXPECT_FALSE(lease->lost().stop_requested());
  EXPECT_EQ(source->renew(lease->claim(), Ms{10'000}), Renewal::renewed);
  cluster.member(hung).resume();
}

TEST(OneHungMember, WhichIsAskedFirstEndsNoLease) {
  EtcdCluster cluster{3};
  expect_kept_beside(cluster, (cluster.leader() + 1) % 3);
}

TEST(OneHungMember, WhichLedEndsNoLease) {
  EtcdCluster cluster{3};
  expect_kept_beside(cluster, cluster.leader());
}

// Five members, of which the first answers once the next one is asked as well, and no other answers at all.
TEST(SlowMember, WhichAnswersWhileTheNextIsAskedIsHeard) {
  EtcdCluster cluster{1};
  std::atomic<bool> is_slow{false}, is_next_asked{false};
  const auto wait = [](const std::function<bool()>& is_over) {
    while (!is_over()) std::this_thread::sleep_for(Ms{1});
  };
  std::vector<std::unique_ptr<Proxy>> members;
  std::string hosts;
  for (int i = 0; i < 5; ++i) {
    members.push_back(std::make_unique<Proxy>(
        cluster.member(0).port(), [&, i](std::size_t, Proxy::Direction way, std::string_view piece) {
          if (i > 0 && way == Proxy::Direction::to_server && is_slow) is_next_asked = true;
          if (way == Proxy::Direction::to_client) wait([&] { return !is_slow || (i == 0 && is_next_asked); });
          return piece.size();
        }));
    hosts += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", members.back()->port());
  }
  const auto source = open("etcd://" + hosts);
  constexpr Ms ttl{8'000};
  const auto grant = std::get<Grant>(source->try_acquire(resource, Holder::random(), ttl));
  is_slow = true;
  EXPECT_NO_THROW(EXPECT_EQ(source->renew(grant.claim, ttl), Renewal::renewed));
  EXPECT_TRUE(is_next_asked);
  is_slow = false;
}

TEST_F(Lost, ALeaseThatIsRevokedAtTheServerIsLost) {
  auto lease = here_->acquire(resource, {.ttl = Ms{9'000}});
  ASSERT_TRUE(lease);
  EXPECT_TRUE(client_.revoke(keys_under(client_, lock + "/").at(0).lease));
  wait_until([&] { return lease->lost().stop_requested(); });
  EXPECT_EQ(lease->release(), Release::not_held);
}

// The key may have been removed by hand while its lease lives on, which keep-alives would not tell.
TEST_F(Lost, ALeaseWhoseKeyIsGoneIsLost) {
  auto lease = here_->acquire(resource, {.ttl = Ms{9'000}});
  ASSERT_TRUE(lease);
  const auto key = keys_under(client_, lock + "/").at(0).key;
  EXPECT_TRUE(client_.txn({{}, {etcd::remove(key)}}).succeeded);
  wait_until([&] { return lease->lost().stop_requested(); });
}

// The request breaks off in its last byte, so that it is not done. It is sent again, and that one tells.
TEST_F(Lost, AReleaseWhoseFirstRequestIsLostFreesTheLock) {
  std::atomic<bool> is_armed{false};
  Proxy proxy{cluster_.member(0).port(),
              [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                const bool is_cut = direction == Proxy::Direction::to_server && is_armed.exchange(false);
                return is_cut ? piece.size() - 1 : piece.size();
              }};
  const auto far = open(cluster_.url_of_port(proxy.port(), "?timeout=20s"));
  const auto grant = take(*far, "holder");
  is_armed = true;
  EXPECT_EQ(far->release(grant.claim), Release::released);
  EXPECT_TRUE(keys_under(client_, lock + "/").empty());
}

// A holder is stopped past its lease, another one takes over, and the first one wakes up believing. By turns
// the lease runs out, or is revoked by somebody else, where waiting makes no difference.
TEST_F(Lost, AHolderThatWakesUpAfterItsLeaseIsRefusedAndItsSuccessorIsNot) {
  const int cycles = std::max(20, scaled(100));
  const int expiries = scaled(10);
  int admitted_stale = 0;
  int refused_fresh = 0;
  JudgingGuard guard;
  for (int i = 0; i < cycles; ++i) {
    const auto old = take(*here_, "old" + std::to_string(i), i < expiries ? least_ttl : long_ttl).claim;
    EXPECT_EQ(guard.write(old), Verdict::admitted);
    if (i >= expiries) {
      EXPECT_TRUE(client_.revoke(keys_under(client_, lock + "/").at(0).lease));
    }
    const auto next = there_->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = limit});
    ASSERT_TRUE(next);
    if (guard.write(next->claim) != Verdict::admitted) ++refused_fresh;
    if (guard.write(old) != Verdict::stale) ++admitted_stale;
    EXPECT_EQ(here_->renew(old, long_ttl), Renewal::lost);
    EXPECT_EQ(here_->release(old), Release::not_held);
    if (guard.write(next->claim) != Verdict::admitted) ++refused_fresh;
    EXPECT_EQ(there_->release(next->claim), Release::released);
  }
  EXPECT_EQ(admitted_stale, 0);
  EXPECT_EQ(refused_fresh, 0);
}

}  // namespace
}  // namespace fenceguard::test
