#include <atomic>

#include "tests/etcd/source/source.hpp"
#include "tests/process/proxy.hpp"

namespace fenceguard::test {
namespace {

enum class At { request, body, answer };

// Cuts the connection at the n-th piece of a kind, once: before a request, before the last byte of one, or
// before an answer, or what a watch is told.
class Cut {
 public:
  Cut(At at, int n) : at_{at}, left_{n} {}

  std::size_t operator()(Proxy::Direction direction, std::string_view piece) {
    const bool is_request = direction == Proxy::Direction::to_server && piece.starts_with("POST ");
    const bool is_body = direction == Proxy::Direction::to_server && piece.ends_with("}");
    const bool is_answer = direction == Proxy::Direction::to_client;
    const bool is_counted = at_ == At::request ? is_request : at_ == At::body ? is_body : is_answer;
    if (!is_counted || --left_ != 0) return piece.size();
    was_made_ = true;
    return at_ == At::body ? piece.size() - 1 : 0;
  }
  [[nodiscard]] bool was_made() const { return was_made_; }

 private:
  const At at_;
  std::atomic<int> left_;
  std::atomic<bool> was_made_{false};
};

class CutConnection : public testing::TestWithParam<At> {
 protected:
  using Story = std::function<void(TokenSource& far)>;

  // Runs story on a source whose connection is cut at the first piece, the second, ..., until a run passes
  // without a cut. After each the lock must be had by others, at the latest once the least lease has run out,
  // with a higher token, and no key may stay.
  int cut_until_it_passes(const Story& story) {
    for (int n = 1;; ++n) {
      Cut cut{GetParam(), n};
      {
        Proxy proxy{cluster_.member(0).port(), [&](std::size_t, Proxy::Direction direction,
                                                   std::string_view piece) { return cut(direction, piece); }};
        const auto far = open(cluster_.url_of_port(proxy.port(), "?timeout=20s"));
        story(*far);
      }
      const auto next = near_->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = limit});
      if (!next || next->claim.token.value() <= last_) {
        ADD_FAILURE() << "after cut " << n << " the lock is held by nobody, or its token fell";
        return n;
      }
      last_ = next->claim.token.value();
      near_->release(next->claim);
      wait_until([&] { return keys_under(client_, lock + "/").empty(); });
      if (!cut.was_made()) return n - 1;
    }
  }

  // What whoever believes to hold the lock may rely on, for as long as its lease lives.
  void expect_held_once(const Grant& grant, BootClock::time_point lives_until) {
    EXPECT_GT(grant.claim.token.value(), last_);
    last_ = grant.claim.token.value();
    const auto shown = near_->show(resource);
    const auto other = near_->try_acquire(resource, Holder::random(), long_ttl);
    const bool has_lived = BootClock::now() < lives_until;
    if (const auto* taken = std::get_if<Grant>(&other)) {
      EXPECT_FALSE(has_lived) << "the lock is held twice";
      near_->release(taken->claim);
    }
    if (!has_lived) return;
    ASSERT_TRUE(shown);
    EXPECT_EQ(shown->claim, grant.claim);
  }

  EtcdCluster cluster_{1};
  etcd::Client client_{cluster_.url()};
  std::unique_ptr<TokenSource> near_ = open(cluster_.url());
  std::int64_t last_ = 0;
};

TEST_P(CutConnection, AtAnyStepOfAnUncontendedLeaseLeavesNoLockOrphanedOrHeldTwice) {
  const auto cuts = cut_until_it_passes([&](TokenSource& far) {
    for (int i = 0; i < 2; ++i) {
      try {
        const auto lives_until = BootClock::now() + 2 * least_ttl;
        const auto grant = far.wait_acquire(resource, Holder::random(), {.ttl = 2 * least_ttl});
        if (!grant) continue;
        expect_held_once(*grant, lives_until);
        (void)far.renew(grant->claim, 2 * least_ttl);
        (void)far.release(grant->claim);
      } catch (const Unavailable&) {
      } catch (const OutcomeUnknown&) {
      }
    }
  });
  // A lease, its key, keep-alive and check, and removal; again with a keep-alive in place of the lease.
  EXPECT_GE(cuts, 10);
}

TEST_P(CutConnection, AtAnyStepOfAWaitLeavesNoLockOrphanedOrHeldTwice) {
  const auto cuts = cut_until_it_passes([&](TokenSource& far) {
    const auto before = take(*near_, "before");
    auto granted = before.claim.token.value();
    std::atomic<bool> has_ended{false};
    std::jthread waiter{[&] {
      try {
        const auto grant =
            far.wait_acquire(resource, Holder::random(), {.ttl = 2 * least_ttl, .wait = Ms{30'000}});
        if (grant) granted = grant->claim.token.value();
        if (grant) (void)far.release(grant->claim);
      } catch (const Unavailable&) {
      } catch (const OutcomeUnknown&) {
      }
      has_ended = true;
    }};
    // Until it waits, or has given up, which a cut at its first steps makes it do.
    wait_until([&] { return has_ended || keys_under(client_, lock + "/").size() == 2; });
    near_->release(before.claim);
    waiter.join();
    EXPECT_GE(granted, before.claim.token.value());
    last_ = granted;
  });
  EXPECT_GE(cuts, 6);
}

TEST_P(CutConnection, WhileAnotherHoldsTheLockChangesNothingForIt) {
  const auto cuts = cut_until_it_passes([&](TokenSource& far) {
    const auto grant = take(*near_, "holder");
    last_ = grant.claim.token.value();
    try {
      EXPECT_TRUE(is_held(far));
    } catch (const Unavailable&) {
    } catch (const OutcomeUnknown&) {
    }
    EXPECT_EQ(near_->renew(grant.claim, long_ttl), Renewal::renewed);
    EXPECT_EQ(near_->release(grant.claim), Release::released);
    // What the other left behind runs out; it asked for a long time, and is not made to wait for it here.
    for (const auto& key : keys_under(client_, lock + "/")) (void)client_.revoke(key.lease);
  });
  EXPECT_GE(cuts, 3);
}

// It has the lock. Whatever is lost of its asking again, it is not told that the outcome is not known, for
// which the sidecar would give the lease back, and it has the lock still.
TEST_P(CutConnection, WhileTheHolderAsksAgainLeavesItTheLock) {
  const auto cuts = cut_until_it_passes([&](TokenSource& far) {
    const auto grant = take(*near_, "holder");
    last_ = grant.claim.token.value();
    try {
      EXPECT_EQ(take(far, "holder").claim, grant.claim);
    } catch (const Unavailable&) {
    }
    EXPECT_EQ(near_->renew(grant.claim, long_ttl), Renewal::renewed);
    EXPECT_EQ(near_->release(grant.claim), Release::released);
    for (const auto& key : keys_under(client_, lock + "/")) (void)client_.revoke(key.lease);
  });
  EXPECT_GE(cuts, 5);  // a lease, the line, the keep-alive and the check, and the lease's end
}

INSTANTIATE_TEST_SUITE_P(Etcd, CutConnection, testing::Values(At::request, At::body, At::answer),
                         [](const auto& at) {
                           return std::string{at.param == At::request ? "at_the_request"
                                              : at.param == At::body  ? "in_the_body"
                                                                      : "at_the_answer"};
                         });

}  // namespace
}  // namespace fenceguard::test
