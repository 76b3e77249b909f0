#include <new>

#include "server/leases/lease_queue.hpp"
#include "tests/proof/memory/memory.hpp"
#include "tests/proof/simulation/sources.hpp"

namespace fenceguard::proof {

// The lease queue of a guard in front of a source that is one counter. As the LeaseService drives it: one
// step at a time for each resource, and a lease that no caller took is given back.
class QueueSource : public SimulatedSource {
 public:
  QueueSource(World& world, std::int64_t first_token) : SimulatedSource{world}, counter_{first_token - 1} {}

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                            std::chrono::milliseconds ttl) override {
    return acquire_by(resource, holder, ttl, 0);
  }

  std::optional<Grant> wait_acquire(const Resource& resource, const Holder& holder,
                                    const AcquireOptions& options) override {
    auto answer = acquire_by(resource, holder, options.ttl, options.wait.count());
    auto* grant = std::get_if<Grant>(&answer);
    if (grant == nullptr) return std::nullopt;
    grant->ttl = std::chrono::hours{1};
    grant->asked_at = BootClock::now();
    return std::move(*grant);
  }

  Renewal renew(const Claim& claim, std::chrono::milliseconds ttl) override {
    world_.sleep(world_.random(6));
    Lease* lease = live(claim.resource);
    if (lease == nullptr || lease->claim != claim) return Renewal::lost;
    lease->until_ms = clock_ms() + ttl.count();
    return Renewal::renewed;
  }

  Release release(const Claim& claim) override {
    if (is_caller_dead()) return Release::not_held;
    world_.sleep(world_.random(6));
    const bool is_done = free(claim);
    feed([&](Queue::Actions& actions) { queue_.released(claim.resource, now(), actions); });
    return is_done ? Release::released : Release::not_held;
  }

  void raise(const Resource&, Token mark) override {
    world_.sleep(world_.random(6));
    counter_ = std::max(counter_, mark.value());
    ++world_.counts.raises;
  }

  Token draw() override { return Token{issued() + 1}; }

 private:
  using Queue = LeaseQueue;
  using Kind = Queue::Action::Kind;
  struct Lease {
    Claim claim;
    std::int64_t until_ms;
  };
  struct Asked {
    Resource resource;
    Holder holder;
    std::chrono::milliseconds ttl;
    std::function<void(std::variant<Grant, LockBusy>)> done;
  };

  std::variant<Grant, LockBusy> acquire_by(const Resource& resource, const Holder& holder,
                                           std::chrono::milliseconds ttl, std::int64_t wait_ms) {
    std::optional<Queue::AskId> id;
    const int life = life_;
    auto answer = world_.await<std::variant<Grant, LockBusy>>(wait_ms + 60, [&](auto done) {
      feed([&](Queue::Actions& actions) {
        id = queue_.arrive({resource, holder, world_.random.percent(30), now() + Queue::Duration{wait_ms}},
                           now(), actions);
        if (id) asked_.emplace(*id, Asked{resource, holder, ttl, done});
      });
    });
    if (!id || life != life_) return LockBusy{};
    if (!answer) {
      feed([&](Queue::Actions& actions) {
        queue_.gone(*id, now(), actions);
        queue_.undelivered(*id, now(), actions);
      });
      return LockBusy{};
    }
    feed([&](Queue::Actions& actions) { queue_.delivered(*id, now(), actions); });
    return *std::move(answer);
  }

  [[nodiscard]] Queue::Time now() const { return Queue::Time{std::chrono::milliseconds{world_.now_ms()}}; }
  [[nodiscard]] std::int64_t clock_ms() const { return world_.now_ms() + clock_jump_ms_; }

  Lease* live(const Resource& resource) {
    const auto found = leases_.find(resource);
    if (found == leases_.end()) return nullptr;
    if (found->second.until_ms > clock_ms()) return &found->second;
    leases_.erase(found);
    return nullptr;
  }

  bool free(const Claim& claim) {
    Lease* lease = live(claim.resource);
    if (lease == nullptr || lease->claim != claim) return false;
    leases_.erase(claim.resource);
    return true;
  }

  void feed(const std::function<void(Queue::Actions&)>& event) {
    Queue::Actions actions;
    try {
      const Memory::Watch watch;
      event(actions);
    } catch (const std::bad_alloc&) {
      return crash();  // as what is thrown in its thread ends the product
    }
    for (const auto& action : actions) perform(action);
    if (const auto wake = queue_.wake_at()) {
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(*wake - now()).count();
      world_.after(std::max<std::int64_t>(0, wait), [this, at = *wake] {
        if (queue_.wake_at() && *queue_.wake_at() <= now())
          feed([&](Queue::Actions& late) { queue_.tick(now(), late); });
      });
    }
  }

  // Its process is gone, and another one is there: no caller hears any more, and leases end by themselves.
  void crash() {
    ++world_.counts.guard_crashes;
    ++life_;
    asked_.clear();
    queue_ = Queue{asks_max};
  }

  // For as long as this process lives.
  void later(std::int64_t delay_ms, std::function<void()> run) {
    world_.after(delay_ms, [this, life = life_, run = std::move(run)] {
      if (life == life_) run();
    });
  }

  void perform(const Queue::Action& action) {
    const auto id = action.ask;
    switch (action.kind) {
      case Kind::ask:
        return later(world_.random(8), [this, id] { ask_source(id); });
      case Kind::revert:
        return later(world_.random(8), [this, claim = *action.claim] {
          free(claim);
          feed([&](Queue::Actions& actions) { queue_.reverted(claim.resource, now(), actions); });
        });
      case Kind::identify:
        return later(world_.random(8), [this, id] {
          const auto asked = asked_.find(id);
          if (asked == asked_.end()) return;
          const Lease* lease = live(asked->second.resource);
          const bool is_holder = lease != nullptr && lease->claim.holder == asked->second.holder;
          feed([&](Queue::Actions& actions) { queue_.identified(id, is_holder, now(), actions); });
        });
      case Kind::refuse:
      case Kind::dismiss:
        return finish(id, LockBusy{action.retry_after});
    }
  }

  void finish(Queue::AskId id, std::variant<Grant, LockBusy> answer) {
    const auto asked = asked_.find(id);
    if (asked == asked_.end()) return;
    const auto done = std::move(asked->second.done);
    asked_.erase(asked);
    done(std::move(answer));
  }

  // The counter falls back as after the restore of a backup, and its leases are forgotten; clocks jump.
  void upset() {
    if (happens(world_.weather.clock_jump)) {
      ++world_.counts.clock_jumps;
      constexpr std::int64_t year_ms = 365LL * 24 * 3600 * 1000;
      clock_jump_ms_ += world_.random.percent(50) ? year_ms : -year_ms;
    }
    if (!happens(world_.weather.source_fault)) return;
    ++world_.counts.source_faults;
    counter_ = std::max<std::int64_t>(0, counter_ - world_.random(4));
    leases_.clear();
  }

  void ask_source(Queue::AskId id) {
    upset();
    const auto found = asked_.find(id);
    if (found == asked_.end())
      return feed([&](Queue::Actions& actions) { queue_.failed(id, now(), actions); });
    const Asked asked = found->second;
    Lease* lease = live(asked.resource);
    const bool is_again = lease != nullptr && lease->claim.holder == asked.holder;
    if ((lease != nullptr && !is_again) || (!is_again && counter_ == never)) {
      const Queue::Duration left{lease != nullptr ? std::min<std::int64_t>(lease->until_ms - clock_ms(), 1000)
                                                  : 1000};
      return feed([&](Queue::Actions& actions) { queue_.held(id, left, now(), actions); });
    }
    if (!is_again) {
      const Claim claim{asked.resource, Token{++counter_}, asked.holder, std::nullopt};
      leases_.insert_or_assign(asked.resource, Lease{claim, 0});
      lease = &leases_.at(asked.resource);
      note_grant(counter_);
    }
    lease->until_ms = clock_ms() + asked.ttl.count();
    const Grant grant{lease->claim, asked.ttl, !is_again, BootClock::time_point{}};
    feed([&](Queue::Actions& actions) {
      if (queue_.granted(id, grant.claim, asked.ttl, now(), actions, !is_again))
        later(world_.random(3), [this, id, grant] { finish(id, grant); });
    });
  }

  static constexpr std::size_t asks_max = 1'000;
  Queue queue_{asks_max};
  int life_ = 0;
  std::map<Queue::AskId, Asked> asked_;
  std::map<Resource, Lease> leases_;
  std::int64_t counter_;
  std::int64_t clock_jump_ms_ = 0;
};

std::unique_ptr<SimulatedSource> queue_source(World& world, std::int64_t first_token) {
  return std::make_unique<QueueSource>(world, first_token);
}

}  // namespace fenceguard::proof
