// Random histories of the lease queue against a model of a source, in virtual time.
//
// Shows: every ask is answered exactly once; a resource has one step at a time; nobody who waits is passed by
// somebody who came later; and at the end the source holds no lease but those whose answer was delivered.
// How: seeded; callers come, go away and lose answers at random while steps take random time.

#include <gtest/gtest.h>

#include <random>

#include "server/leases/lease_queue.hpp"

namespace fenceguard {
namespace {

using namespace std::chrono_literals;
using Kind = LeaseQueue::Action::Kind;
using Id = LeaseQueue::AskId;

class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_{seed} {}

  void run() {
    for (int i = 0; i < 400; ++i) {
      at(now_ + 1ms * below(4000), [this] { arrive(); });
      if (i % 4 == 0) at(now_ + 1ms * below(4000), [this] { release_some(); });
    }
    while (!testing::Test::HasFailure()) {
      const auto wake = queue_.wake_at();
      if (!wake && events_.empty()) break;
      if (wake && (events_.empty() || *wake <= events_.begin()->first)) {
        now_ = std::max(now_, *wake);
        queue_.tick(now_, actions_);
      } else {
        now_ = events_.begin()->first;
        const auto event = std::move(events_.begin()->second);
        events_.erase(events_.begin());
        event();
      }
      perform();
    }
    check_the_end();
  }

 private:
  struct Lease {
    Holder holder;
    Token token;
  };
  struct Caller {
    Resource resource;
    Holder holder;
    bool is_named;
    bool is_gone = false;
    int answers = 0;
  };

  unsigned below(unsigned end) { return std::uniform_int_distribution<unsigned>{0, end - 1}(random_); }
  void at(LeaseQueue::Time time, std::function<void()> event) { events_.emplace(time, std::move(event)); }

  void arrive() {
    const Resource resource{"r" + std::to_string(below(3))};
    const bool is_named = below(3) == 0;
    const Holder holder{is_named ? "named" + std::to_string(below(4)) : "drawn" + std::to_string(++drawn_)};
    const auto wait = below(3) == 0 ? 0ms : 1ms * below(2000);
    const auto id = queue_.arrive({resource, holder, is_named, now_ + wait}, now_, actions_);
    ASSERT_TRUE(id);
    callers_.insert({*id, {resource, holder, is_named}});
    if (below(5) == 0) {
      at(now_ + 1ms * below(500), [this, id = *id] {
        callers_.at(id).is_gone = true;
        queue_.gone(id, now_, actions_);
      });
    }
  }

  void perform() {
    while (!actions_.empty()) {
      for (const auto& action : std::exchange(actions_, {})) perform(action);
    }
  }

  void perform(const LeaseQueue::Action& action) {
    switch (action.kind) {
      case Kind::ask:
        return begin_step(callers_.at(action.ask).resource, [this, id = action.ask] { ask(id); });
      case Kind::revert:
        return begin_step(action.claim->resource, [this, claim = *action.claim] {
          release(claim);
          queue_.reverted(claim.resource, now_, actions_);
        });
      case Kind::identify:
        return at(now_ + 1ms * below(30), [this, id = action.ask] {
          const auto& caller = callers_.at(id);
          const auto lease = leases_.find(caller.resource);
          queue_.identified(id, lease != leases_.end() && lease->second.holder == caller.holder, now_,
                            actions_);
        });
      case Kind::refuse:
      case Kind::dismiss:
        EXPECT_EQ(++callers_.at(action.ask).answers, 1) << "ask " << action.ask;
        return;
    }
  }

  void begin_step(const Resource& resource, std::function<void()> end) {
    EXPECT_TRUE(stepping_.insert(resource).second) << "two steps at once for " << resource.name();
    at(now_ + 1ms * below(40), [this, resource, end = std::move(end)] {
      stepping_.erase(resource);
      end();
    });
  }

  // The source answers somewhere within the step; here at its end.
  void ask(Id id) {
    auto& caller = callers_.at(id);
    if (below(20) == 0) {
      EXPECT_EQ(++caller.answers, 1);
      return queue_.failed(id, now_, actions_);
    }
    const auto present = leases_.find(caller.resource);
    if (present != leases_.end() && present->second.holder != caller.holder) {
      return queue_.held(id, 1ms * below(300), now_, actions_);
    }
    if (present == leases_.end()) leases_.insert({caller.resource, {caller.holder, Token{++last_token_}}});
    const Claim claim{caller.resource, leases_.at(caller.resource).token, caller.holder, {}};
    if (!queue_.granted(id, claim, 10s, now_, actions_)) return;
    EXPECT_EQ(++caller.answers, 1);
    if (!caller.is_named) expect_first_come(id, caller);
    const bool is_lost = below(4) == 0;
    at(now_ + 1ms * below(60), [this, id, claim, is_lost] {
      if (is_lost) return queue_.undelivered(id, now_, actions_);
      delivered_.insert(claim.token.value());
      queue_.delivered(id, now_, actions_);
    });
  }

  // Holders that were drawn are granted in the order in which they came.
  void expect_first_come(Id id, const Caller& caller) {
    auto& last = last_granted_[caller.resource];
    EXPECT_LT(last, id);
    last = id;
  }

  void release(const Claim& claim) {
    const auto lease = leases_.find(claim.resource);
    if (lease != leases_.end() && lease->second.token == claim.token) leases_.erase(lease);
  }

  // The holders of delivered leases are done with them.
  void release_some() {
    for (auto lease = leases_.begin(); lease != leases_.end();) {
      const bool is_done = delivered_.contains(lease->second.token.value()) && below(2) == 0;
      const Resource resource = lease->first;
      lease = is_done ? leases_.erase(lease) : std::next(lease);
      if (is_done) queue_.released(resource, now_, actions_);
    }
  }

  void check_the_end() {
    EXPECT_TRUE(queue_.is_idle());
    EXPECT_FALSE(queue_.wake_at());
    for (const auto& [id, caller] : callers_) EXPECT_EQ(caller.answers, 1) << "ask " << id;
    for (const auto& [resource, lease] : leases_) {
      EXPECT_TRUE(delivered_.contains(lease.token.value()))
          << "nobody knows of the lease of " << resource.name();
    }
  }

  std::mt19937 random_;
  LeaseQueue::Time now_{1000s};
  std::multimap<LeaseQueue::Time, std::function<void()>> events_;
  LeaseQueue queue_{10'000};
  LeaseQueue::Actions actions_;
  std::map<Id, Caller> callers_;
  std::map<Resource, Lease> leases_;
  std::map<Resource, Id> last_granted_;
  std::set<Resource> stepping_;
  std::set<std::int64_t> delivered_;
  std::int64_t last_token_ = 0;
  unsigned drawn_ = 0;
};

TEST(LeaseQueueSimulation, NoHistoryLeavesALeaseThatNobodyKnowsOf) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation{seed}.run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace fenceguard
