// Lanes whose old holders are cut off, with threads, a state and a fencer.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "server/fencing/fencer.hpp"
#include "server/lane/lane_scheduler.hpp"
#include "tests/conformance/scale.hpp"
#include "tests/conformance/temp_dir.hpp"
#include "tests/sqlite/calls.hpp"

namespace fenceguard::test {
namespace {

using namespace proxy;
using std::chrono::milliseconds;

constexpr int writers = 6;
constexpr int resources = 3;

// Which holders entered, were cut off, and gave their claims back.
class Account {
 public:
  void let_in(const Claim& claim) {
    const std::scoped_lock lock{mutex_};
    auto& last = last_[claim.resource.name()];
    const auto token = claim.token.value();
    if (last != 0 && last < token && last > cut_off_to_[claim.resource.name()] && !finished_.contains(last))
      mistakes_.push_back(fmt::format("{} went on before {} was cut off", token, last));
    last = std::max(last, token);
  }
  void cut_off(const TakeOver& take_over) {
    const std::scoped_lock lock{mutex_};
    auto& cut_off_to = cut_off_to_[take_over.resource];
    cut_off_to = std::max(cut_off_to, take_over.old_token);
    ++cuts_;
  }
  void finish(const Claim& claim) {
    const std::scoped_lock lock{mutex_};
    finished_.insert(claim.token.value());
  }
  [[nodiscard]] std::vector<std::string> mistakes() const { return mistakes_; }
  [[nodiscard]] int cuts() const { return cuts_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::int64_t> last_;
  std::map<std::string, std::int64_t> cut_off_to_;
  std::set<std::int64_t> finished_;
  std::vector<std::string> mistakes_;
  int cuts_ = 0;
};

// Takes a moment, and fails once in a while.
class Method : public FenceMethod {
 public:
  explicit Method(Account& account) : account_{account} {}
  [[nodiscard]] std::string name() const override { return "test"; }
  [[nodiscard]] FenceResult run(const TakeOver& take_over, const FenceRun& /*run*/) override {
    const int number = runs_.fetch_add(1);
    if (is_running_.contains_or_add(take_over.resource)) ADD_FAILURE() << "two runs at a time";
    std::this_thread::sleep_for(milliseconds{number % 3});
    const bool is_cut_off = number % 50 != 49;
    if (is_cut_off) account_.cut_off(take_over);
    is_running_.remove(take_over.resource);
    return {is_cut_off ? FenceResult::Outcome::success : FenceResult::Outcome::failure, ""};
  }

 private:
  class Names {
   public:
    bool contains_or_add(const std::string& name) {
      const std::scoped_lock lock{mutex_};
      return !names_.insert(name).second;
    }
    void remove(const std::string& name) {
      const std::scoped_lock lock{mutex_};
      names_.erase(name);
    }

   private:
    std::mutex mutex_;
    std::set<std::string> names_;
  };

  Account& account_;
  std::atomic<int> runs_{0};
  Names is_running_;
};

// Says that it has begun, and ends when it is released.
struct HeldMethod : FenceMethod {
  std::promise<void> begun, released;
  [[nodiscard]] std::string name() const override { return "held"; }
  [[nodiscard]] FenceResult run(const TakeOver& /*take_over*/, const FenceRun& /*run*/) override {
    begun.set_value();
    released.get_future().wait();
    return {FenceResult::Outcome::success, ""};
  }
};

std::unique_ptr<Fencer> fencer_with(std::unique_ptr<FenceMethod> method) {
  FencerOptions options{.methods = {}, .on_failure = FencerOptions::OnFailure::wait};
  options.methods.push_back(std::move(method));
  return std::make_unique<Fencer>(std::move(options));
}

std::unique_ptr<Fencer> fencer_with(Account& account) {
  return fencer_with(std::make_unique<Method>(account));
}

Entry enter(LaneScheduler& lanes, Ticket ticket, const Claim& claim) {
  auto promise = std::make_shared<std::promise<Entry>>();
  auto later = promise->get_future();
  auto entry = lanes.enter({ticket, Kind::write, {claim}},
                           [promise](Entry told) { promise->set_value(std::move(told)); });
  return entry ? *std::move(entry) : later.get();
}

void write_once(LaneScheduler& lanes, Account& account, const Claim& claim, bool is_finished) {
  for (;;) {
    const auto ticket = lanes.new_ticket();
    const auto entry = enter(lanes, ticket, claim);
    if (std::holds_alternative<RefusedEvent>(entry)) return;
    if (std::holds_alternative<EnteredEvent>(entry)) {
      account.let_in(claim);
      (void)lanes.leave(ticket, Ending::took_effect, [](const LeftEvent&) {});
      if (!is_finished) return;
      account.finish(claim);
      (void)wait_for<bool>([&](Done<bool> done) { lanes.finish(claim, std::move(done)); });
      return;
    }
    std::this_thread::sleep_for(milliseconds{5});
  }
}

TEST(LanesCut, NoHolderEntersBeforeThePreviousOneIsCutOff) {
  const TempDir folder;
  Account account;
  const auto fencer = fencer_with(account);
  LaneOptions options;
  options.state = sqlite::open_storage(folder.file("state.db"), initialised());
  options.is_settled = true;
  LaneScheduler lanes{options, 0, 1'000};
  lanes.cut_off_by(*fencer);
  std::atomic<std::int64_t> next{10};
  std::vector<std::thread> threads;
  for (int writer = 0; writer < writers; ++writer) {
    threads.emplace_back([&, writer] {
      std::mt19937 random{static_cast<unsigned>(writer)};
      for (int i = 0; i < scaled(60); ++i) {
        const auto token = next.fetch_add(1);
        const Claim claim{Resource{fmt::format("r{}", random() % resources)}, Token{token},
                          Holder{fmt::format("h{}", token)}, std::nullopt};
        write_once(lanes, account, claim, random() % 4 == 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(account.mistakes(), std::vector<std::string>{});
  EXPECT_GT(account.cuts(), 0);
}

// Once the method has begun, the higher token is durable and nothing is in flight: only the cut-off keeps its
// holder out, which both a claim that raised the fence and one that equals it must wait for.
TEST(LanesCut, NothingEntersUntilTheMethodHasEnded) {
  const TempDir folder;
  auto owned = std::make_unique<HeldMethod>();
  HeldMethod& method = *owned;
  const auto fencer = fencer_with(std::move(owned));
  LaneOptions options;
  options.state = sqlite::open_storage(folder.file("state.db"), initialised());
  options.is_settled = true;
  LaneScheduler lanes{options, 0, 1'000};
  lanes.cut_off_by(*fencer);
  Account account;
  write_once(lanes, account, claim_of("a", 34, "x"), false);

  std::vector<std::pair<Ticket, std::future<Entry>>> asked;
  const auto enters_at_once = [&] {
    auto promise = std::make_shared<std::promise<Entry>>();
    asked.emplace_back(lanes.new_ticket(), promise->get_future());
    auto entry = lanes.enter({asked.back().first, Kind::write, {claim_of("a", 35, "y")}},
                             [promise](Entry late) { promise->set_value(std::move(late)); });
    if (entry) promise->set_value(*entry);
    return entry.has_value();
  };
  EXPECT_FALSE(enters_at_once());
  method.begun.get_future().wait();
  EXPECT_FALSE(enters_at_once());
  method.released.set_value();
  for (auto& [ticket, entry] : asked) {
    EXPECT_TRUE(std::holds_alternative<EnteredEvent>(entry.get()));
    (void)lanes.leave(ticket, Ending::took_effect, [](const LeftEvent&) {});
  }
}

TEST(LanesCut, StoppedFencerFailsWaitersAndTheNextGuardCutsOff) {
  const TempDir folder;
  Account account;
  const auto fencer = fencer_with(account);
  LaneOptions options;
  options.state = sqlite::open_storage(folder.file("state.db"), initialised());
  options.is_settled = true;
  std::optional<LaneScheduler> lanes;
  lanes.emplace(options, 0, 1'000);
  lanes->cut_off_by(*fencer);
  write_once(*lanes, account, claim_of("a", 34, "x"), false);
  fencer->stop();
  const auto entry = enter(*lanes, lanes->new_ticket(), claim_of("a", 35, "y"));
  ASSERT_TRUE(std::holds_alternative<FailedEvent>(entry));
  lanes.reset();
  lanes.emplace(options, 0, 1'000);
  const auto again = fencer_with(account);
  lanes->cut_off_by(*again);
  write_once(*lanes, account, claim_of("a", 35, "y"), false);
  EXPECT_EQ(account.mistakes(), std::vector<std::string>{});
  EXPECT_EQ(account.cuts(), 1);
  lanes.reset();
}

}  // namespace
}  // namespace fenceguard::test
