// What a guard says while members are killed, stopped or cut off: never an admission that is not there.

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/conformance/scale.hpp"
#include "tests/etcd/guard/space.hpp"

namespace fenceguard::test {
namespace {

using namespace std::chrono_literals;
using etcd::put;

constexpr std::chrono::seconds limit{60};

// Members keep changing under guards that take over from each other. Every write is a key of its own, so that
// the order in which they took effect can be read from the store afterwards.
TEST(EtcdGuardQuorum, FiftyLeaderKillsLandNoStaleWriteAndLoseNothing) {
  EtcdCluster cluster;
  EtcdSpace space{cluster};
  std::atomic<bool> is_over{false};
  std::atomic<std::int64_t> next{1};
  std::atomic<int> unknown{0}, nothing{0};
  std::mutex mutex;
  std::set<std::string> acknowledged;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      etcd::Client client{space.address("?timeout=500ms")};
      etcd::Guard guard{client};
      for (int turn = 0; !is_over; ++turn) {
        const auto claim = claim_of(next++, fmt::format("h{}", i));
        for (int step = 0; step < 4 && !is_over; ++step) {
          const auto key = space.key(fmt::format("log/{}/{}/{}", claim.token.value(), i, step));
          try {
            if (!guard.write(claim, {put(key, "")}).is_done()) break;
            const std::scoped_lock lock{mutex};
            acknowledged.insert(key);
          } catch (const OutcomeUnknown&) {
            ++unknown;
          } catch (const Unavailable&) {
            ++nothing;
          }
        }
      }
    });
  }
  // However the test ends, so do the threads.
  struct Ending {
    ~Ending() { is_over = true; }
    std::atomic<bool>& is_over;
  } const ending{is_over};
  const auto writes = [&] {
    const std::scoped_lock lock{mutex};
    return acknowledged.size();
  };
  const int kills = scaled(50);
  for (int kill = 0; kill < kills; ++kill) {
    const auto leader = cluster.leader();
    const auto before = writes();
    cluster.member(leader).kill();
    (void)cluster.leader();
    cluster.member(leader).start();
    cluster.wait_until_serving();
    // There is load between two kills.
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (writes() < before + 3 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(5ms);
    ASSERT_GE(writes(), before + 3);
  }
  is_over = true;
  threads.clear();
  auto all = etcd::get_all(space.key("log/"));
  all.sort = etcd::Op::Sort::by_create_revision;
  all.keys_only = true;
  const auto txn = until_answered([&] {
    return space.client().txn({{}, {all, etcd::remove(space.keys().nothing())}, {}});
  });
  const auto& log = txn.answers.at(0);
  std::int64_t highest = 0;
  for (const auto& entry : log.found) {
    std::int64_t token = 0;
    ASSERT_EQ(std::sscanf(entry.key.c_str() + space.key("log/").size(), "%ld/", &token), 1);
    ASSERT_GE(token, highest) << "a stale write: " << entry.key;
    highest = token;
    acknowledged.erase(entry.key);
  }
  EXPECT_TRUE(acknowledged.empty()) << acknowledged.size() << " lost, such as " << *acknowledged.begin();
  EXPECT_GT(log.found.size(), static_cast<std::size_t>(kills));
  RecordProperty("kills", kills);
  RecordProperty("unknown", unknown);
  RecordProperty("unavailable", nothing);
}

// The old holder's write lies in the socket of a leader that is stopped. Its successor goes on with the
// others; then the old leader wakes up and finds the write.
TEST(EtcdGuardQuorum, WriteDelayedInAStoppedLeaderDoesNotLandAfterSuccessors) {
  EtcdCluster cluster;
  EtcdSpace space{cluster};
  for (int round = 0; round < scaled(10); ++round) {
    SCOPED_TRACE(round);
    const auto old_claim = claim_of(2 * round + 1, "old");
    const auto new_claim = claim_of(2 * round + 2, "new", "r", 1);
    const auto leader = cluster.leader();
    etcd::Client old_client{space.address_by(cluster.member(leader).port(), "?timeout=300ms")};
    etcd::Guard old_guard{old_client};
    (void)until_answered([&] { return old_guard.advance(old_claim); });
    cluster.member(leader).pause();
    EXPECT_EQ(kind_of([&] { return old_guard.write(old_claim, {put(space.key(), "old")}); }),
              FaultKind::unknown);
    (void)cluster.leader();
    etcd::Client client{space.address("?timeout=500ms")};
    etcd::Guard guard{client};
    const auto mine = fmt::format("new {}", round);
    const auto written = until_answered([&] { return guard.write(new_claim, {put(space.key(), mine)}); });
    EXPECT_TRUE(written.is_done() || written.ruling.verdict == Verdict::duplicate);
    EXPECT_EQ(until_answered([&] { return space.value(); }), mine);
    cluster.member(leader).resume();
    cluster.wait_until_serving();
    const auto late = until_answered([&] { return old_guard.write(old_claim, {put(space.key(), "late")}); });
    EXPECT_EQ(late.ruling.verdict, Verdict::stale);
    EXPECT_EQ(until_answered([&] { return space.value(); }), mine);
  }
}

TEST(EtcdGuardQuorum, WithoutAMajorityNothingIsAdmittedUntilItReturns) {
  EtcdCluster cluster;
  EtcdSpace space{cluster};
  etcd::Client client{space.address("?timeout=500ms")};
  etcd::Guard guard{client};
  const auto first =
      until_answered([&] { return guard.write(claim_of(5, "h", "r", 1), {put(space.key(), "1")}); });
  EXPECT_TRUE(first.is_done() || first.ruling.verdict == Verdict::duplicate);
  const auto leader = cluster.leader();
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    if (i != leader) cluster.member(i).kill();
  }
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_GE(kind_of([&] { return guard.write(claim_of(5, "h", "r", 2), {put(space.key(), "2")}); }),
              FaultKind::unavailable);
    EXPECT_GE(kind_of([&] { return guard.advance(claim_of(6, "new")); }), FaultKind::unavailable);
    // One that moves nothing can be known to have done nothing. It may not be answered from memory.
    EXPECT_EQ(kind_of([&] { return guard.read(claim_of(5), {etcd::get(space.key())}); }),
              FaultKind::unavailable);
    EXPECT_EQ(kind_of([&] { return guard.write(claim_of(4, "old"), {put(space.key(), "x")}); }),
              FaultKind::unavailable);
  }
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    if (i != leader) cluster.member(i).start();
  }
  cluster.wait_until_serving();
  // What was unknown may have landed, and if so once: an advance to 6, or a second write before it.
  const auto fence = until_answered([&] { return space.fence(); });
  EXPECT_TRUE(fence == "5 1 open h" || fence == "5 2 open h" || fence == "6 - open new") << fence;
  EXPECT_EQ(
      until_answered([&] { return guard.write(claim_of(7, "next"), {put(space.key(), "3")}); }).is_done(),
      true);
  EXPECT_EQ(until_answered([&] { return space.value(); }), "3");
}

}  // namespace
}  // namespace fenceguard::test
