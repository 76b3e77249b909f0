#include "tests/conformance/guard/guard_suite.hpp"

#include <atomic>
#include <random>
#include <thread>

#include "tests/conformance/scale.hpp"

namespace fenceguard::test {

TEST_P(GuardSuite, AWriteIsJudgedAsTheSharedTableSays) {
  for_each_floor([](GuardSpace& space, const std::vector<JudgeCase>& cases) {
    const auto connection = space.connect();
    for (const auto& expected : cases) {
      SCOPED_TRACE("line " + std::to_string(expected.line));
      const auto claim = expected.claim(resource_of(expected).name());
      ASSERT_EQ(space.fence(claim.resource), expected.view);
      const auto ruling = connection->write(claim, "new");
      const FenceView after{expected.after, expected.view.floor};
      EXPECT_EQ(ruling.verdict, expected.verdict);
      EXPECT_EQ(ruling.highest, after.highest());
      EXPECT_EQ(space.fence(claim.resource), after);
      EXPECT_EQ(connection->read(claim.resource), expected.verdict == Verdict::admitted ? "new" : "");
    }
  });
}

// An advance is the same claim without its sequence.
TEST_P(GuardSuite, AnAdvanceIsJudgedAsTheSharedTableSaysAndUsesUpNoSequence) {
  for_each_floor([](GuardSpace& space, const std::vector<JudgeCase>& cases) {
    const auto connection = space.connect();
    for (const auto& expected : cases) {
      SCOPED_TRACE("line " + std::to_string(expected.line));
      const auto claim = expected.claim(resource_of(expected).name());
      const auto wanted = judge(expected.view, claim.without_sequence());
      const auto ruling = connection->advance(claim);
      EXPECT_EQ(ruling.verdict, wanted.verdict);
      EXPECT_EQ(ruling.highest, wanted.highest);
      EXPECT_EQ(space.fence(claim.resource), (FenceView{wanted.fence, expected.view.floor}));
      EXPECT_EQ(connection->read(claim.resource), "");
    }
  });
}

TEST_P(GuardSuite, AHolderThatWasOvertakenIsRefusedForGood) {
  const auto space = fresh();
  const auto a = space->connect();
  const auto b = space->connect();
  const Resource r{"accounts/42"};
  EXPECT_EQ(a->advance(claim_of(r, 33, "a")).verdict, Verdict::admitted);
  EXPECT_EQ(a->write(claim_of(r, 33, "a"), "by a").verdict, Verdict::admitted);
  EXPECT_EQ(b->advance(claim_of(r, 34, "b")).verdict, Verdict::admitted);
  const auto refusal = a->write(claim_of(r, 33, "a"), "late");
  EXPECT_EQ(refusal.verdict, Verdict::stale);
  EXPECT_EQ(refusal.highest, 34);
  EXPECT_EQ(b->read(r), "by a");
  EXPECT_EQ(b->write(claim_of(r, 34, "b"), "by b").verdict, Verdict::admitted);
  EXPECT_EQ(a->advance(claim_of(r, 33, "a")).verdict, Verdict::stale);
  EXPECT_EQ(a->write(claim_of(r, 34, "a"), "stolen").verdict, Verdict::conflict);
  EXPECT_EQ(b->read(r), "by b");
}

TEST_P(GuardSuite, OneResourceSaysNothingOfAnother) {
  const auto space = fresh();
  const auto connection = space->connect();
  EXPECT_EQ(connection->write(claim_of(Resource{"accounts/42"}, 34), "x").verdict, Verdict::admitted);
  for (const char* name : {"accounts", "accounts/4", "accounts/421", "accounts/42/a", "Accounts/42"}) {
    EXPECT_EQ(connection->write(claim_of(Resource{name}, 1), "y").verdict, Verdict::admitted) << name;
  }
  EXPECT_EQ(connection->write(claim_of(Resource{"accounts/42"}, 33), "z").verdict, Verdict::stale);
}

// A random history of writes and advances by several clients, one after the other, gives exactly the
// verdicts, the fences and the values that judge() gives.
TEST_P(GuardSuite, ARandomHistoryIsWhatTheRuleSays) {
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 1);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random{seed};
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto space = fresh();
  std::vector<std::unique_ptr<GuardConnection>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(space->connect());
  std::map<Resource, FenceView> fences;
  std::map<Resource, std::string> values;
  for (int step = 0; step < scaled(2'000); ++step) {
    const Resource r{"r/" + std::to_string(below(4))};
    Claim claim{r, Token{1 + step / 50 + below(6)}, Holder{std::string(1, static_cast<char>('a' + below(3)))},
                std::nullopt};
    if (below(2) == 0) claim.sequence = Sequence{below(5)};
    GuardConnection& client = *clients[static_cast<std::size_t>(below(3))];
    const bool is_write = below(3) != 0;
    const auto wanted = judge(fences[r], is_write ? claim : claim.without_sequence());
    const auto value = std::to_string(step);
    const auto ruling = is_write ? client.write(claim, value) : client.advance(claim);
    ASSERT_EQ(ruling.verdict, wanted.verdict) << "step " << step;
    ASSERT_EQ(ruling.highest, wanted.highest) << "step " << step;
    if (wanted.verdict == Verdict::admitted) {
      fences[r].record = wanted.fence;
      if (is_write) values[r] = value;
    }
    if (below(20) == 0) {
      ASSERT_EQ(space->fence(r), fences[r]) << "step " << step;
      ASSERT_EQ(client.read(r), values[r]) << "step " << step;
    }
  }
  for (const auto& [r, view] : fences) EXPECT_EQ(space->fence(r), view);
  for (const auto& [r, value] : values) EXPECT_EQ(clients[0]->read(r), value);
}

// G1: what was admitted is never followed by anything admitted with a lower token. Each operation notes what
// had ended before it began.
TEST_P(GuardSuite, NoThreadIsAdmittedBelowATokenAdmittedBeforeItBegan) {
  constexpr int clients = 6;
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 2);
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto space = fresh();
  const Resource resources[2]{Resource{"g1/a"}, Resource{"g1/b"}};
  std::atomic<std::int64_t> next{1};
  std::atomic<std::int64_t> ended[2]{0, 0};  // highest token whose admission has ended
  std::atomic<int> violations{0};
  std::atomic<int> admitted{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random{seed + static_cast<unsigned>(i)};
      const auto client = space->connect();
      const std::string holder = "h" + std::to_string(i);
      std::int64_t token = next++;
      for (int step = 0; step < scaled(150); ++step) {
        if (random() % 8 == 0) token = next++;
        const std::size_t which = random() % 2;
        const auto seen = ended[which].load();
        const auto claim = claim_of(resources[which], token, holder);
        const auto ruling = random() % 3 == 0 ? client->advance(claim) : client->write(claim, holder);
        if (ruling.verdict != Verdict::admitted) continue;
        ++admitted;
        if (token < seen) ++violations;
        auto highest = ended[which].load();
        while (highest < token && !ended[which].compare_exchange_weak(highest, token)) {
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(violations, 0);
  EXPECT_GT(admitted, 0);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(space->fence(resources[i]).highest(), ended[i]);
}

// G2: two holders who were given one number by mistake; one of them writes, the other is told of the
// conflict.
TEST_P(GuardSuite, TwoHoldersNeverBothWriteUnderOneToken) {
  const auto space = fresh();
  for (int round = 0; round < scaled(40); ++round) {
    const Resource r{"g2/" + std::to_string(round)};
    std::atomic<int> winners{0};
    std::atomic<int> conflicts{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const auto client = space->connect();
        const auto claim = claim_of(r, 7, "h" + std::to_string(i));
        const auto verdict = i % 2 == 0 ? client->write(claim, "x").verdict : client->advance(claim).verdict;
        winners += verdict == Verdict::admitted ? 1 : 0;
        conflicts += verdict == Verdict::conflict ? 1 : 0;
      });
    }
    threads.clear();
    ASSERT_EQ(winners, 1);
    ASSERT_EQ(conflicts, 3);
  }
}

// G3: everybody takes over from everybody, advances, reads a counter and writes it raised by one. If a
// takeover missed a write, the counter would be lower than the number of admitted writes.
TEST_P(GuardSuite, NoUpdateIsLostAtATakeover) {
  const auto space = fresh();
  const Resource r{"g3"};
  std::atomic<std::int64_t> next{1};
  std::atomic<int> admitted{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const auto client = space->connect();
      for (int turn = 0; turn < scaled(80); ++turn) {
        const auto claim = claim_of(r, next++, "h" + std::to_string(i));
        if (client->advance(claim).verdict != Verdict::admitted) continue;
        const auto text = client->read(r);
        const int value = text.empty() ? 0 : std::stoi(text);
        if (turn % 4 == 0) std::this_thread::yield();
        if (client->write(claim, std::to_string(value + 1)).verdict == Verdict::admitted) ++admitted;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(space->connect()->read(r), std::to_string(admitted));
  EXPECT_GT(admitted, 0);
}

// A delayed duplicate under one token is recognised, whoever of the holder's connections delivers it.
TEST_P(GuardSuite, EachSequenceTakesEffectOnceHoweverOftenItIsSent) {
  const auto space = fresh();
  const Resource r{"sequences"};
  constexpr int sequences = 20;
  std::atomic<int> effects[sequences]{};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto client = space->connect();
      for (int n = 0; n < sequences; ++n) {
        const auto claim = claim_of(r, 1).with(Sequence{n});
        if (client->write(claim, std::to_string(n)).verdict == Verdict::admitted) ++effects[n];
      }
    });
  }
  threads.clear();
  for (const auto& effect : effects) EXPECT_LE(effect, 1);
  EXPECT_EQ(space->fence(r).record->sequence, Sequence{sequences - 1});
  EXPECT_EQ(space->connect()->read(r), std::to_string(sequences - 1));
}

}  // namespace fenceguard::test
