#include <algorithm>
#include <atomic>
#include <mutex>

#include "tests/etcd/source/source.hpp"
#include "tests/process/proxy.hpp"

namespace fenceguard::test {
namespace {

class Waiting : public testing::Test {
 protected:
  [[nodiscard]] std::size_t line() { return keys_under(client_, lock + "/").size(); }

  EtcdCluster cluster_{1};
  etcd::Client client_{cluster_.url()};
  std::unique_ptr<TokenSource> source_ = open(cluster_.url());
};

// All connections go through a proxy that counts the watches that were told something. With many waiters,
// each release wakes the next one and nobody else, in the order in which they came.
TEST_F(Waiting, ExactlyOneClientIsWokenPerHandOver) {
  const auto waiters = static_cast<std::size_t>(scaled(200));
  std::atomic<std::size_t> woken{0};
  Proxy proxy{
      cluster_.member(0).port(), [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
        if (direction == Proxy::Direction::to_client && piece.find("\"events\"") != std::string_view::npos)
          ++woken;
        return piece.size();
      }};
  const auto far = open(cluster_.url_of_port(proxy.port(), "?timeout=30s"));
  auto grant = take(*source_, "first");
  std::atomic<std::size_t> served{0};
  std::mutex mutex;
  std::vector<std::size_t> order;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < waiters; ++i) {
    threads.emplace_back([&, i] {
      const auto mine = far->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = Ms{600'000}});
      if (!mine) return;
      {
        const std::scoped_lock guard{mutex};
        order.push_back(i);
      }
      ++served;
      far->release(mine->claim);
    });
    wait_until([&] { return line() == i + 2; });
  }
  EXPECT_EQ(woken, 0U);
  source_->release(grant.claim);
  threads.clear();
  EXPECT_EQ(served, waiters);
  // Once each at most. One whose watch was just being made anew was not told, and looked by itself.
  EXPECT_LE(woken, waiters);
  EXPECT_GT(woken, waiters / 2);
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(line(), 0U);
  RecordProperty("woken", std::to_string(woken));
}

// The bytes that the server sends to one who asks in vain, who lines up and gives up, and who looks on.
TEST_F(Waiting, AnAskIsAnsweredAsBrieflyHoweverLongTheQueueIs) {
  std::atomic<std::size_t> bytes{0};
  Proxy proxy{cluster_.member(0).port(),
              [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (direction == Proxy::Direction::to_client) bytes += piece.size();
                return piece.size();
              }};
  const auto asked_among = [&](int entries) {
    for (int i = 0; i < entries; ++i) {
      const auto key = lock + "/" + std::to_string(entries) + "-" + std::to_string(i);
      EXPECT_TRUE(client_.txn({{}, {etcd::put(key, "someone-with-a-name awaits")}}).succeeded);
    }
    const auto far = open(cluster_.url_of_port(proxy.port(), "?timeout=30s"));
    bytes = 0;
    EXPECT_TRUE(is_held(*far));
    EXPECT_FALSE(far->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = Ms{1}}));
    return bytes.load();
  };
  const auto first = take(*source_, "first");
  const auto among_few = asked_among(5);
  EXPECT_LT(asked_among(300), among_few + among_few / 4);
  EXPECT_EQ(source_->release(first.claim), Release::released);
}

TEST_F(Waiting, AWaiterThatStopsOrTimesOutLeavesNothing) {
  const auto grant = take(*source_, "first");
  EXPECT_FALSE(source_->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = Ms{100}}));
  EXPECT_EQ(line(), 1U);
  std::stop_source stop;
  std::optional<Grant> got;
  std::jthread waiter{[&] {
    got = source_->wait_acquire(resource, Holder::random(),
                                {.ttl = long_ttl, .wait = limit, .stop = stop.get_token()});
  }};
  wait_until([&] { return line() == 2; });
  stop.request_stop();
  waiter.join();
  EXPECT_FALSE(got);
  EXPECT_EQ(line(), 1U);
  EXPECT_EQ(source_->renew(grant.claim, long_ttl), Renewal::renewed);
}

TEST_F(Waiting, AWaiterThatIsCutOffFailsAndItsPlaceRunsOut) {
  Proxy proxy{cluster_.member(0).port()};
  const auto far = open(cluster_.url_of_port(proxy.port(), "?timeout=2s"));
  const auto grant = take(*source_, "first");
  std::atomic<bool> failed{false};
  std::jthread waiter{[&] {
    try {
      (void)far->wait_acquire(resource, Holder::random(), {.ttl = least_ttl, .wait = Ms{5'000}});
    } catch (const Error&) {
      failed = true;
    }
  }};
  wait_until([&] { return line() == 2; });
  proxy.set(Proxy::Way::closed);
  waiter.join();
  EXPECT_TRUE(failed);
  wait_until([&] { return line() == 1; });
}

// A process that stands still for long loses its place, but not each time.
TEST_F(Waiting, APlaceIsKeptForLongerThanItsFirstTerm) {
  constexpr Ms term{6'000};
  bool was_kept = false;
  for (int i = 0; i < 3 && !was_kept; ++i) {
    auto grant = take(*source_, "first");
    std::optional<Grant> got;
    std::jthread waiter{
        [&] { got = source_->wait_acquire(resource, Holder{"second"}, {.ttl = term, .wait = limit}); }};
    wait_until([&] { return line() == 2; });
    const auto position = keys_under(client_, lock + "/").back();
    const auto until = BootClock::now() + term + least_ttl;
    wait_until([&] { return BootClock::now() > until; });
    was_kept = keys_under(client_, lock + "/").back().key == position.key;
    source_->release(grant.claim);
    waiter.join();
    ASSERT_TRUE(got);
    was_kept = was_kept && got->claim.token.value() == position.create_revision;
    source_->release(got->claim);
  }
  EXPECT_TRUE(was_kept);
}

// Behind a proxy that passes on no streams, say. There is one look to a watch.
// them.
TEST_F(Waiting, AWatchThatEndsAtOnceDoesNotMakeLookingAHotLoop) {
  std::atomic<int> watches{0};
  Proxy proxy{
      cluster_.member(0).port(), [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
        const bool is_watch =
            direction == Proxy::Direction::to_server && piece.find("/v3/watch") != std::string_view::npos;
        if (is_watch) ++watches;
        return is_watch ? 0 : piece.size();
      }};
  const auto far = open(cluster_.url_of_port(proxy.port()));
  const auto first = take(*source_, "first");
  const auto since = BootClock::now();
  std::optional<Grant> got;
  std::jthread waiter{
      [&] { got = far->wait_acquire(resource, Holder{"second"}, {.ttl = long_ttl, .wait = limit}); }};
  wait_until([&] { return watches >= 10; });
  EXPECT_GT(BootClock::now() - since, Ms{1'000});
  source_->release(first.claim);
  waiter.join();
  EXPECT_TRUE(got);
}

// The sidecar asks every few milliseconds for those who wait at it.
TEST_F(Waiting, AskingInVainAgainAndAgainGrantsNoMoreLeases) {
  std::atomic<int> leases{0};
  Proxy proxy{cluster_.member(0).port(),
              [&](std::size_t, Proxy::Direction direction, std::string_view piece) {
                if (direction == Proxy::Direction::to_server && piece.starts_with("POST /v3/lease/grant"))
                  ++leases;
                return piece.size();
              }};
  const auto far = open(cluster_.url_of_port(proxy.port()));
  const auto first = take(*source_, "first");
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(is_held(*far));
  EXPECT_EQ(leases, 1);
  EXPECT_EQ(take(*far, "first").claim, first.claim);
  source_->release(first.claim);
  EXPECT_GT(take(*far, "second").claim.token, first.claim.token);
}

// A compaction is asked for by whoever comes, whatever locks he takes himself.
TEST_F(Waiting, TheLowestLiveTokenIsThatOfAllLocksOfTheNamespace) {
  const auto shared = open(cluster_.url("?lock_key=/jobs/%s"));
  const auto other = open(cluster_.url("?lock_key=/others/%s"));
  const auto lowest = take(*shared, "first").claim.token;
  const auto second = take(*source_, "second").claim.token;
  EXPECT_EQ(source_->lowest_live(), lowest);
  EXPECT_EQ(other->lowest_live(), lowest);
  shared->release(Claim{resource, lowest, Holder{"first"}, {}});
  EXPECT_EQ(other->lowest_live(), second);
}

// Its lease was revoked, or ran out while its process was stopped: it lines up again, behind the others.
TEST_F(Waiting, AWaiterWhoseQueueEntryWasLostQueuesAgain) {
  const auto grant = take(*source_, "first");
  std::optional<Lease> got;
  std::jthread waiter{[&] { got = source_->acquire(resource, {.ttl = Ms{9'000}, .wait = limit}); }};
  wait_until([&] { return line() == 2; });
  const auto position = keys_under(client_, lock + "/").back();
  EXPECT_TRUE(client_.revoke(position.lease));
  wait_until([&] { return line() == 2; });
  source_->release(grant.claim);
  waiter.join();
  ASSERT_TRUE(got);
  EXPECT_GT(got->claim().token.value(), position.create_revision);
  EXPECT_EQ(got->release(), Release::released);
  EXPECT_EQ(line(), 0U);
}

TEST_F(Waiting, ARaiseLiftsWaitersToo) {
  auto grant = take(*source_, "first");
  std::optional<Lease> got;
  std::jthread waiter{[&] { got = source_->acquire(resource, {.ttl = long_ttl, .wait = limit}); }};
  wait_until([&] { return line() == 2; });
  const Token mark{1'000'000'000'000};
  source_->raise(resource, mark);
  source_->release(grant.claim);
  waiter.join();
  ASSERT_TRUE(got);
  EXPECT_GT(got->claim().token, mark);
  EXPECT_EQ(source_->show(resource)->claim, got->claim());
}

// Its turn has come while it could not look, and another call of the same holder, which is told of the grant,
// comes before it. A raise before that lifts the token; one after it does not, since a token is for a tenure.
TEST_F(Waiting, ATokenStaysAsAnsweredWhileTheNewHolderChecksItsQueueEntry) {
  for (const bool raises_before : {true, false}) {
    Proxy proxy{cluster_.member(0).port()};
    const auto far = open(cluster_.url_of_port(proxy.port(), "?timeout=60s"));
    const auto first = take(*source_, "first");
    std::optional<Grant> waited;
    std::jthread waiter{
        [&] { waited = far->wait_acquire(resource, Holder{"second"}, {.ttl = long_ttl, .wait = limit}); }};
    wait_until([&] { return line() == 2; });
    proxy.set(Proxy::Way::silent);
    const Token mark{first.claim.token.value() + 1'000'000};
    if (raises_before) source_->raise(resource, mark);
    source_->release(first.claim);
    const auto asked = take(*source_, "second");
    EXPECT_EQ(asked.claim.token > mark, raises_before);
    if (!raises_before) source_->raise(resource, mark);
    proxy.set(Proxy::Way::open);
    waiter.join();
    ASSERT_TRUE(waited);
    EXPECT_EQ(waited->claim, asked.claim);
    EXPECT_EQ(source_->renew(asked.claim, long_ttl), Renewal::renewed);
    EXPECT_EQ(source_->release(asked.claim), Release::released);
  }
}

// As above, but the one who waited gives up: the lock is the holder's, who was told so.
TEST_F(Waiting, GivingUpAPlaceDoesNotTakeTheLockFromItsHolder) {
  Proxy proxy{cluster_.member(0).port()};
  const auto far = open(cluster_.url_of_port(proxy.port(), "?timeout=60s"));
  const auto first = take(*source_, "first");
  std::stop_source stop;
  std::jthread waiter{[&] {
    (void)far->wait_acquire(resource, Holder{"second"},
                            {.ttl = long_ttl, .wait = limit, .stop = stop.get_token()});
  }};
  wait_until([&] { return line() == 2; });
  proxy.set(Proxy::Way::silent);
  source_->release(first.claim);
  const auto asked = take(*source_, "second");
  stop.request_stop();
  proxy.set(Proxy::Way::open);
  waiter.join();
  EXPECT_EQ(source_->renew(asked.claim, long_ttl), Renewal::renewed);
}

// The holder's own answer was lost, and it asks again, ready to wait: it has the lock already.
TEST_F(Waiting, TheSameHolderDoesNotWaitForItself) {
  const auto grant = take(*source_, "first");
  const auto again = source_->wait_acquire(resource, Holder{"first"}, {.ttl = long_ttl, .wait = limit});
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->claim, grant.claim);
  EXPECT_EQ(line(), 1U);
}

}  // namespace
}  // namespace fenceguard::test
