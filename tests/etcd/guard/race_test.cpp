// What comes between a guard's look at a fence and its write: compactions, restored snapshots, and other
// guards, by threads and by seeded histories.

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "adapters/etcd/fences/fence_admin.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/etcd/guard/space.hpp"

namespace fenceguard::test {
namespace {

using etcd::put;
using Ending = etcd::Admission::Ending;

class EtcdGuardRaces : public testing::Test {
 protected:
  // An admission whose transaction is sent only after act().
  Ending send_after(const Claim& claim, const std::string& value, const auto& act) {
    etcd::Txn txn{{}, {put(space_.key(), value)}, {}};
    const auto admission = guard_.admit_in(claim, txn);
    act();
    return guard_.ruling_of(admission, client_.txn(txn)).ending;
  }

  EtcdSpace space_{shared_cluster()};
  etcd::Client client_{space_.address()};
  etcd::Guard guard_{client_};
  etcd::Guard other_{space_.client()};
};

// A fence that came and went: the guard saw none, the transaction finds none, and in between there was one,
// whose key has the create revision 0 again. The floor tells.
TEST_F(EtcdGuardRaces, AFenceThatCameAndWentBetweenLookAndWriteAdmitsNoStaleWrite) {
  (void)guard_.advance(claim_of(1, "h", "elsewhere"));  // learns the floor
  const auto ending = send_after(claim_of(5, "old"), "stale", [&] {
    EXPECT_TRUE(other_.write(claim_of(9, "new"), {put(space_.key(), "new")}).is_done());
    EXPECT_EQ(etcd::FenceAdmin{space_.client()}.compact(Token{10}).dropped, 2);
  });
  EXPECT_EQ(ending, Ending::refused);
  EXPECT_EQ(space_.value(), "new");
  EXPECT_EQ(space_.fence(), "");
}

// What the guard remembers admits the claim; the newer write came in between.
TEST_F(EtcdGuardRaces, AFencedReadNeverHoldsWhatANewerTokenWrote) {
  (void)guard_.advance(claim_of(5, "old"));
  EXPECT_TRUE(other_.write(claim_of(9, "new"), {put(space_.key(), "new")}).is_done());
  const auto read = guard_.read(claim_of(5, "old"), {etcd::get(space_.key())});
  EXPECT_EQ(read.ruling.verdict, Verdict::stale);
  EXPECT_EQ(read.ruling.highest, 9);
  EXPECT_TRUE(read.answers.empty());
}

// The same with one that was there before: compacted away and made again, lower than its old self may not be.
TEST_F(EtcdGuardRaces, AFenceThatWasCompactedAndMadeAgainAdmitsNoStaleWrite) {
  (void)guard_.advance(claim_of(5, "old"));
  const auto ending = send_after(claim_of(5, "old"), "stale", [&] {
    (void)other_.advance(claim_of(9, "new"));
    (void)etcd::FenceAdmin{space_.client()}.compact(Token{10});
    EXPECT_TRUE(other_.write(claim_of(12, "newest"), {put(space_.key(), "newest")}).is_done());
  });
  EXPECT_EQ(ending, Ending::refused);
  EXPECT_EQ(space_.value(), "newest");
  // Nor does what was folded into the floor come back by itself.
  EXPECT_EQ(other_.advance(claim_of(9, "new")).verdict, Verdict::stale);
}

TEST_F(EtcdGuardRaces, RisenFloorIsSeenByAClaimWhoseFenceDidNotMove) {
  (void)guard_.advance(claim_of(5));
  EXPECT_EQ(send_after(claim_of(5), "late", [&] { space_.set_floor(5); }), Ending::again);
  // At the same height the fence, which knows its holder, stands.
  EXPECT_EQ(send_after(claim_of(5), "late", [] {}), Ending::done);
  EXPECT_EQ(send_after(claim_of(5), "stale", [&] { space_.set_floor(6); }), Ending::refused);
  EXPECT_EQ(guard_.write(claim_of(5), {put(space_.key(), "stale")}).ruling.highest, 6);
  EXPECT_EQ(space_.value(), "late");
}

// A cluster goes back to a snapshot and then uses the same revisions for other things. The guard goes on with
// what it remembers from before.
TEST_F(EtcdGuardRaces, CacheFromBeforeARestoredSnapshotAdmitsNoStaleWrite) {
  EtcdCluster cluster{1};
  EtcdSpace space{cluster};
  etcd::Client client{space.address()};
  etcd::Guard guard{client};
  EXPECT_TRUE(guard.write(claim_of(5, "old"), {put(space.key(), "5")}).is_done());
  const auto file = cluster.folder() + "/snapshot";
  cluster.save_snapshot(file);
  // Remembered: the fence at 6, put at the revision that comes after the snapshot.
  EXPECT_TRUE(guard.write(claim_of(6, "lost"), {put(space.key(), "6")}).is_done());
  const auto at = [&] { return client.range(etcd::get(space.keys().fence(Resource{"r"}))).found.at(0); };
  const auto before = at();
  cluster.restore_snapshot(file);
  EXPECT_EQ(space.value(), "5");
  // The same revision, another fence.
  etcd::Client fresh_client{space.address()};
  etcd::Guard fresh{fresh_client};
  EXPECT_TRUE(fresh.write(claim_of(7, "new"), {put(space.key(), "7")}).is_done());
  EXPECT_EQ(at().mod_revision, before.mod_revision) << "else this shows nothing";
  EXPECT_EQ(guard.write(claim_of(6, "lost"), {put(space.key(), "stale")}).ruling.verdict, Verdict::stale);
  etcd::Txn txn{{}, {put(space.key(), "stale")}, {}};
  const auto admission = guard.admit_in(claim_of(6, "lost"), txn);
  EXPECT_EQ(guard.ruling_of(admission, client.txn(txn)).ending, Ending::refused);
  EXPECT_EQ(guard.advance(claim_of(7, "twin")).verdict, Verdict::conflict) << "one number, granted twice";
  EXPECT_EQ(space.value(), "7");
  // And a sequence that only the lost history knew is not said to have taken effect.
  EXPECT_TRUE(guard.write(claim_of(7, "new", "r", 1), {put(space.key(), "7.1")}).is_done());
  cluster.save_snapshot(file + "2");
  EXPECT_TRUE(guard.write(claim_of(7, "new", "r", 2), {put(space.key(), "7.2")}).is_done());
  cluster.restore_snapshot(file + "2");
  EXPECT_TRUE(guard.write(claim_of(7, "new", "r", 2), {put(space.key(), "again")}).is_done());
  EXPECT_EQ(space.value(), "again");
}

// Many guards, writes, fenced reads, revocations and compactions at once. Each write adds itself to a history
// that is kept in the store, so what took effect, and in which order, is read from the data.
TEST_F(EtcdGuardRaces, HistoryOfManyGuardsKeepsTokensHoldersAndWrites) {
  constexpr int clients = 6;
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 3);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<std::int64_t> next{1};
  std::atomic<int> written{0};
  std::vector<std::set<std::string>> acknowledged(clients);
  std::vector<std::jthread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random{seed + static_cast<unsigned>(i)};
      etcd::Client client{space_.address()};
      etcd::Guard guard{client};
      // Few turns may all be refused by each other's: so many more that some are not.
      for (int turn = 0; turn < scaled(40) || (written <= clients && turn < 1'000); ++turn) {
        // Now and then a number that another one draws too, as a source that repeats itself does.
        const auto token = random() % 5 == 0 ? next.load() : next++;
        const auto claim = claim_of(token, fmt::format("h{}", i), "history");
        for (int step = 0; step < 3; ++step) {
          const auto entry = fmt::format("{}/{}/{}", token, i, turn * 3 + step);
          const auto read = guard.read(claim, {etcd::get(space_.key())});
          if (!read.is_done()) break;
          const auto& found = read.answers.at(0).found;
          const auto history = found.empty() ? std::string{} : found[0].value;
          if (!guard.write(claim, {put(space_.key(), history + entry + " ")}).is_done()) break;
          acknowledged[static_cast<std::size_t>(i)].insert(entry);
          ++written;
        }
        if (turn % 10 == 9)
          (void)etcd::FenceAdmin{client}.compact(Token{std::max<std::int64_t>(token - 3, 1)});
      }
    });
  }
  threads.clear();
  std::istringstream history{space_.value()};
  std::set<std::string> found;
  std::map<std::int64_t, int> holders;
  std::int64_t highest = 0;
  for (std::string entry; history >> entry; found.insert(entry)) {
    std::int64_t token = 0;
    int holder = 0;
    ASSERT_EQ(std::sscanf(entry.c_str(), "%ld/%d/", &token, &holder), 2);
    EXPECT_GE(token, highest) << "G1: a lower token wrote after a higher one";
    highest = std::max(highest, token);
    EXPECT_EQ(holders.emplace(token, holder).first->second, holder) << "G2: two holders of " << token;
  }
  for (const auto& all : acknowledged) {
    for (const auto& entry : all) EXPECT_TRUE(found.contains(entry)) << "G3: lost: " << entry;
  }
  EXPECT_EQ(found.size(), static_cast<std::size_t>(written)) << "and nothing else took effect";
  EXPECT_GT(written, clients);
}

// Transfers between two resources under both claims at once: the sum stays.
TEST_F(EtcdGuardRaces, ConcurrentWritesUnderTwoClaimsAreAtomic) {
  std::atomic<std::int64_t> next{1};
  std::atomic<int> done{0};
  space_.set(space_.key("a"), "0");
  space_.set(space_.key("b"), "0");
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      etcd::Client client{space_.address()};
      etcd::Guard guard{client};
      for (int turn = 0; turn < scaled(60); ++turn) {
        const auto holder = fmt::format("h{}", i);
        const auto token = next++;
        const Claim claims[]{claim_of(token, holder, "a"), claim_of(token, holder, "b")};
        const auto read = guard.write_all(claims, {etcd::get(space_.key("a")), etcd::get(space_.key("b"))});
        if (!read.is_done) continue;
        const int a = std::stoi(read.answers[0].found.at(0).value);
        const int b = std::stoi(read.answers[1].found.at(0).value);
        const auto moved = guard.write_all(claims, {put(space_.key("a"), std::to_string(a - 1)),
                                                    put(space_.key("b"), std::to_string(b + 1))});
        if (moved.is_done) ++done;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(space_.get(space_.key("a")), std::to_string(-done));
  EXPECT_EQ(space_.get(space_.key("b")), std::to_string(done));
  EXPECT_GT(done, 0);
}

}  // namespace
}  // namespace fenceguard::test
