// An ask whose answer is lost, and then no server is there any more: the lock may be taken. That is neither
// 'granted' nor 'held', nor 'nothing happened'.

#include <thread>

#include "tests/etcd/source/requests.hpp"
#include "tests/etcd/source/source.hpp"

namespace fenceguard::test {
namespace {

class Unknown : public testing::Test {
 protected:
  Unknown() { requests_.set_proxy(proxy_); }

  void lose_answer_and_server() {
    requests_.at_next_answer("/v3/kv/txn", [] { return Requests::Then::close; });
  }
  [[nodiscard]] std::size_t queue() { return keys_under(client_, lock + "/").size(); }

  EtcdCluster cluster_{1};
  etcd::Client client_{cluster_.url()};
  std::unique_ptr<TokenSource> near_ = open(cluster_.url());
  Requests requests_;
  Proxy proxy_{cluster_.member(0).port(), requests_.filter()};
  std::unique_ptr<TokenSource> far_ =
      open(cluster_.url_of_port(proxy_.port(), "?timeout=5s&connect_timeout=1s"));
};

TEST_F(Unknown, IsAGrantUnderANewLeaseWhoseAnswerIsLostWithTheServer) {
  lose_answer_and_server();
  EXPECT_THROW((void)far_->try_acquire(resource, Holder{"holder"}, long_ttl), OutcomeUnknown);
  EXPECT_EQ(queue(), 1U);
}

TEST_F(Unknown, IsAGrantUnderASpareLeaseWhoseAnswerIsLostWithTheServer) {
  far_->release(take(*far_, "holder").claim);
  lose_answer_and_server();
  EXPECT_THROW((void)far_->try_acquire(resource, Holder{"holder"}, long_ttl), OutcomeUnknown);
  EXPECT_EQ(queue(), 1U);
  proxy_.set(Proxy::Way::open);
  EXPECT_FALSE(take(*far_, "holder").is_new);  // the same holder finds it
}

TEST_F(Unknown, IsAGrantWhoseAnswerIsLostButNotWhereTheServerStays) {
  requests_.at_next_answer("/v3/kv/txn", [] { return Requests::Then::cut; });
  const auto grant = take(*far_, "holder");
  EXPECT_EQ(near_->show(resource)->claim, grant.claim);
  EXPECT_EQ(far_->release(grant.claim), Release::released);
  // The first request may arrive late, so its lease is not used again.
  EXPECT_EQ(requests_.count("/v3/lease/revoke"), 1);
}

// The waiter's turn comes, the look that takes the lock is answered into the void, and then its time is over,
// or it is stopped.
TEST_F(Unknown, IsAWaitWhoseLastLookHasNoAnswer) {
  for (const bool is_stopped : {false, true}) {
    const auto first = take(*near_, "first");
    const int watches = requests_.count("/v3/watch");
    std::stop_source stop;
    std::exception_ptr fault;
    std::optional<Grant> got;
    std::jthread waiter{[&] {
      try {
        const Ms wait = is_stopped ? limit : Ms{10'000};
        got = far_->wait_acquire(resource, Holder::random(),
                                 {.ttl = long_ttl, .wait = wait, .stop = stop.get_token()});
      } catch (const Error&) {
        fault = std::current_exception();
      }
    }};
    wait_until([&] { return requests_.count("/v3/watch") > watches; });  // so its ask was answered
    lose_answer_and_server();
    near_->release(first.claim);
    wait_until([&] { return keys_under(client_, lock + "/").at(0).value.ends_with(" 0"); });  // granted
    if (is_stopped) stop.request_stop();
    waiter.join();
    ASSERT_FALSE(got);
    ASSERT_TRUE(fault) << is_stopped;
    EXPECT_THROW(std::rethrow_exception(fault), OutcomeUnknown);
    EXPECT_EQ(near_->end(resource), Release::released);
    proxy_.set(Proxy::Way::open);
    requests_.forget();
  }
}

// While it waits nothing is lost: its entry is given up, or left to its time to live.
TEST_F(Unknown, IsNotAWaitThatWasNotYetItsTurn) {
  const auto first = take(*near_, "first");
  std::stop_source stop;
  std::optional<Grant> got;
  std::jthread waiter{[&] {
    got = far_->wait_acquire(resource, Holder::random(),
                             {.ttl = long_ttl, .wait = limit, .stop = stop.get_token()});
  }};
  wait_until([&] { return queue() == 2; });
  proxy_.set(Proxy::Way::closed);
  stop.request_stop();
  waiter.join();
  EXPECT_FALSE(got);
}

// Its first request was done; the second finds nothing to do, and cannot tell who did it.
TEST_F(Unknown, IsAReleaseWhoseAnswerIsLostAndTheLockIsFree) {
  const auto grant = take(*far_, "holder");
  requests_.at_answer_of_next_removal([] { return Requests::Then::cut; });
  EXPECT_THROW(far_->release(grant.claim), OutcomeUnknown);
  EXPECT_EQ(queue(), 0U);
  EXPECT_EQ(requests_.count("/v3/lease/revoke"), 1);
  EXPECT_EQ(far_->release(grant.claim), Release::not_held);
}

}  // namespace
}  // namespace fenceguard::test
