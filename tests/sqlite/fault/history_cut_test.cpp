// Whole histories of a storage whose machine loses its power at the k-th call, at the next one's, ... and
// once more while the storage recovers or soon after, each through the independent checker.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <semaphore>

#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/proof/checker/check.hpp"
#include "tests/proof/random.hpp"
#include "tests/sqlite/calls.hpp"
#include "tests/sqlite/fault/faulty_vfs.hpp"
#include "tests/sqlite/fault/knowledge.hpp"

namespace fenceguard::test {
namespace {

using proof::Answer;
using proof::Operation;

// Clients of one storage, some calls of theirs at a time, and what they were told. Once the power is gone
// nobody is told anything.
class CutHistory {
 public:
  CutHistory(FaultyVfs& disk, std::string path, std::uint64_t seed)
      : disk_{disk}, path_{std::move(path)}, random_{seed} {
    history_.resources = {{"a", {}, {}, false}, {"b", {}, {}, false}};
  }

  // Opens the storage and uses it until the power is gone, at last when there is nothing more to do. True: it
  // was gone before.
  bool live(int rounds) {
    processes_ += 4;  // those of before are gone
    bool was_cut = true;
    try {
      const OpenStorage storage{path_};
      for (int round = 0; round < rounds && !disk_.is_crashed(); ++round)
        work(storage, 1 + random_(calls_max));
      was_cut = disk_.is_crashed();
      disk_.crash();
    } catch (const Error&) {
      EXPECT_TRUE(disk_.is_crashed());
    }
    disk_.restart();
    return was_cut;
  }
  // What is there in the end, as every client sees it.
  void read_all() {
    processes_ += 4;
    const OpenStorage storage{path_};
    for (std::size_t resource = 0; resource < 2; ++resource) {
      const int client = static_cast<int>(resource) * 2;
      call(storage, resource, client, [](Operation& operation) { operation.kind = proof::Kind::read; });
      call(storage, resource, client + 1, [&](Operation& operation) { claim(operation, resource, 0); });
    }
    for (int i = 0; i < 4; ++i) answered_.acquire();
  }
  [[nodiscard]] std::vector<proof::Violation> check() {
    proof::put_in_order(history_);
    return proof::check(history_);
  }
  [[nodiscard]] std::string text(const proof::Violation& violation) const {
    for (const auto& resource : history_.resources) {
      if (resource.name == violation.resource)
        return violation.sentence + "\n" +
               proof::table_of(proof::prefix_of(resource, violation.until), history_.texts);
    }
    return violation.sentence;
  }
  [[nodiscard]] int open_count() const { return open_count_; }

 private:
  static constexpr int calls_max = 3;

  // An advance with the highest token so far, or one that is more or less.
  void claim(Operation& operation, std::size_t resource, int more) {
    operation.kind = proof::Kind::advance;
    operation.token = std::max<std::int64_t>(1, highest_[resource] + more);
    operation.holder = history_.texts.id("h");
    highest_[resource] = std::max(highest_[resource], operation.token);
  }

  void work(const OpenStorage& storage, int calls) {
    for (int i = 0; i < calls; ++i) {
      const auto resource = static_cast<std::size_t>(random_(2));
      call(storage, resource, i, [&](Operation& operation) {
        if (random_.percent(10)) {
          operation.kind = proof::Kind::read;
          return;
        }
        claim(operation, resource, random_.percent(30) ? 1 : -random_.percent(10));
        if (random_.percent(20)) return;
        operation.kind = random_.percent(80) ? proof::Kind::write : proof::Kind::read;
        if (operation.kind == proof::Kind::read) return;
        operation.value = history_.texts.id(fmt::format("v{}", ++values_));
        if (random_.percent(30)) operation.sequence = ++sequence_;
      });
    }
    for (int i = 0; i < calls; ++i) answered_.acquire();
  }

  void call(const OpenStorage& storage, std::size_t resource, int client, const auto& make) {
    Operation operation;
    make(operation);
    const auto& name = history_.resources[resource].name;
    std::optional<Claim> claim;
    if (operation.token > 0) {
      claim = claim_of(name, operation.token);
      if (operation.sequence >= 0) claim->sequence = Sequence{operation.sequence};
    }
    const std::string body = history_.texts.text(operation.value);
    std::size_t at = 0;
    {
      const std::scoped_lock lock{mutex_};
      auto& operations = history_.resources[resource].operations;
      operation.process = processes_ + client;
      operation.called = ++now_;
      at = operations.size();
      operations.push_back(operation);
    }
    if (operation.kind == proof::Kind::write) {
      storage.objects().write(*claim, {ObjectWrite::Kind::put, name, body, "text/plain", {}, {}},
                              [=, this](const Outcome<WriteReport>& outcome) {
                                hear(resource, at, outcome,
                                     [&](Operation& told) { note(told, outcome.value().ruling); });
                              });
    } else if (operation.kind == proof::Kind::read) {
      storage.objects().read({name, claim, true}, [=, this](const Outcome<ReadReport>& outcome) {
        hear(resource, at, outcome, [&](Operation& told) {
          told.answer = Answer::admitted;
          const auto& report = outcome.value();
          if (report.ruling) note(told, *report.ruling);
          if (report.object) told.value = history_.texts.id(report.object->body);
        });
      });
    } else {
      storage.fences().advance(*claim, [=, this](const Outcome<Ruling>& outcome) {
        hear(resource, at, outcome, [&](Operation& told) { note(told, outcome.value()); });
      });
    }
  }

  static void note(Operation& told, const Ruling& ruling) {
    told.answer = static_cast<Answer>(ruling.verdict);
    told.highest = ruling.highest;
  }

  template <class T>
  void hear(std::size_t resource, std::size_t at, const Outcome<T>& outcome, const auto& note) {
    {
      const std::scoped_lock lock{mutex_};
      if (disk_.is_crashed()) {
        ++open_count_;
      } else {
        Operation& told = history_.resources[resource].operations[at];
        told.returned = ++now_;
        EXPECT_TRUE(outcome.ok());
        if (outcome.ok()) note(told);
      }
    }
    answered_.release();
  }

  FaultyVfs& disk_;
  const std::string path_;
  proof::Random random_;
  std::mutex mutex_;
  std::counting_semaphore<> answered_{0};
  proof::History history_;
  std::int64_t highest_[2] = {0, 0};
  std::int64_t now_ = 0, processes_ = 0, values_ = 0, sequence_ = 0;
  int open_count_ = 0;
};

class PowerCutHistories : public testing::Test {
 protected:
  // One whose power goes at the k-th call, and then at some call of each later life. True: it did at the
  // k-th.
  bool run(int k, std::uint64_t seed) {
    CutHistory history{disk_, folder_.file(fmt::format("{}.db", k)), seed};
    proof::Random random{seed + 1};
    disk_.crash_at(k);
    const bool was_cut = history.live(12);
    for (int life = 0; life < 3; ++life) {
      disk_.crash_at(1 + random(life == 0 ? 12 : 60));
      (void)history.live(6);
    }
    history.read_all();
    open_count_ += history.open_count();
    for (const auto& violation : history.check()) {
      ++violations_;
      last_ = fmt::format("cut at call {}, {}: {}", k, violation.rule, history.text(violation));
    }
    return was_cut;
  }

  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed())};
  TempDir folder_{TempDir::Place::memory};
  FaultyVfs disk_{folder_.path(), seed()};
  int open_count_ = 0, violations_ = 0;
  std::string last_;
};

TEST_F(PowerCutHistories, AtEveryCallAndAgainDuringRecoveryHaveNoViolation) {
  int k = 1;
  for (; run(k, seed() * 10'000 + static_cast<std::uint64_t>(k)); k += slowdown) {
    ASSERT_EQ(violations_, 0) << last_;
    ASSERT_LT(k, 1'000);
  }
  EXPECT_EQ(violations_, 0) << last_;
  EXPECT_GT(k, 40);
  EXPECT_GT(open_count_, 0);
}

// Or the test above would show nothing.
TEST_F(PowerCutHistories, WithALowerSynchronousSettingSomeLoseWhatWasAcknowledged) {
  disk_.lower_synchronous();
  for (int k = 20; k < 200 && violations_ == 0; ++k)
    (void)run(k, seed() * 10'000 + static_cast<std::uint64_t>(k));
  EXPECT_GT(violations_, 0);
}

}  // namespace
}  // namespace fenceguard::test
