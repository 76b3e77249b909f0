#include "guard/lease.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "guard/error.hpp"
#include "guard/source/acquire_deadline.hpp"
#include "tests/guard/memory_source.hpp"

namespace fenceguard {
namespace {

using namespace std::chrono_literals;
using test::MemorySource;

const Resource account{"accounts/42"};

// The moment at which a lease is signalled lost.
class Loss {
 public:
  explicit Loss(const Lease& lease)
      : future_{promise_.get_future()}, callback_{lease.lost(), [this] {
                                                    promise_.set_value(BootClock::now());
                                                  }} {}

  [[nodiscard]] bool happened() const { return future_.wait_for(0s) == std::future_status::ready; }
  [[nodiscard]] BootClock::time_point at() {
    if (future_.wait_for(60s) != std::future_status::ready) throw std::runtime_error{"no loss was signalled"};
    return future_.get();
  }

 private:
  std::promise<BootClock::time_point> promise_;
  std::future<BootClock::time_point> future_;
  std::stop_callback<std::function<void()>> callback_;
};

TEST(Lease, IsRenewedFromAThirdOfItsTermOnAndKeepsItsToken) {
  MemorySource source;
  const auto before = BootClock::now();
  auto lease = source.acquire(account, {.ttl = 6s});
  ASSERT_TRUE(lease);
  const Claim claim = lease->claim();
  ASSERT_TRUE(source.wait_for_renewals(2));
  const auto renewals = source.renewals();
  for (std::size_t i = 0; i < renewals.size(); ++i) EXPECT_GE(renewals[i] - before, (i + 1) * 2s) << i;
  EXPECT_FALSE(lease->lost().stop_requested());
  EXPECT_EQ(lease->claim(), claim);
  EXPECT_EQ(source.show(account)->claim, claim);
  EXPECT_TRUE(std::holds_alternative<LockBusy>(source.try_acquire(account, Holder{"other"}, 1s)));
}

struct Ending {
  BootClock::duration to_spare;  // from the signal until the term is over at the source
  BootClock::duration late;      // that a thread woke which slept until the signal was due
  std::size_t renewals;
};

// How a lease ends whose renewals all end with fault.
Ending ending_by(MemorySource::Fault fault) {
  constexpr auto ttl = 3000ms;
  constexpr auto early = ttl / 10;
  MemorySource source;
  source.set_renewal_fault(fault);
  auto lease = source.acquire(account, {.ttl = ttl});
  const auto granted_by = BootClock::now();
  Loss loss{*lease};
  const auto due = granted_by + ttl - early;
  auto late = std::async(std::launch::async, [due] {
    std::this_thread::sleep_for(due - BootClock::now());
    return BootClock::now() - due;
  });
  const auto to_spare = granted_by + ttl - loss.at();
  source.set_renewal_fault(MemorySource::Fault::none);
  return {to_spare, late.get(), source.renewals().size()};
}

// The same, again where the signal came too late but so did the machine with any thread.
Ending ending_in_time(MemorySource::Fault fault) {
  constexpr int rounds_max = 10;
  auto ending = ending_by(fault);
  for (int i = 1; i < rounds_max && ending.to_spare <= 0s && ending.late > 20ms; ++i)
    ending = ending_by(fault);
  return ending;
}

// What it shows: lost() comes before the source lets anybody else in, though no renewal ever returned.
// How: renewals hang; the moment of the signal is compared with the end of the term at the source.
TEST(Lease, IsSignalledLostBeforeItsTermIsOverWhenRenewalsHang) {
  EXPECT_GT(ending_in_time(MemorySource::Fault::hang).to_spare, 0s);
}

TEST(Lease, IsSignalledLostBeforeItsTermIsOverWhenRenewalsFail) {
  const auto ending = ending_in_time(MemorySource::Fault::unavailable);
  EXPECT_GT(ending.to_spare, 0s);
  EXPECT_GE(ending.renewals, 2u) << "a failed renewal was not tried again";
}

TEST(Lease, IsRenewedAtOnceWhereItIsAskedFor) {
  MemorySource source;
  auto lease = source.acquire(account, {.ttl = 24h});
  lease->renew_now();
  EXPECT_TRUE(source.wait_for_renewals(1));
  lease->renew_now();
  EXPECT_TRUE(source.wait_for_renewals(2));
  EXPECT_FALSE(lease->lost().stop_requested());
}

TEST(Lease, OutlivesARenewalThatFailed) {
  MemorySource source;
  source.set_renewal_fault(MemorySource::Fault::unavailable);
  auto lease = source.acquire(account, {.ttl = 9s});
  ASSERT_TRUE(source.wait_for_renewals(1));
  source.set_renewal_fault(MemorySource::Fault::none);
  // The fourth is due when the first term is over.
  ASSERT_TRUE(source.wait_for_renewals(4));
  EXPECT_FALSE(lease->lost().stop_requested());
}

TEST(Lease, StaysLostWhenARenewalSucceedsTooLate) {
  MemorySource source;
  source.set_renewal_fault(MemorySource::Fault::hang);
  auto lease = source.acquire(account, {.ttl = 4s});
  Loss loss{*lease};
  ASSERT_TRUE(source.wait_for_renewals(1));
  (void)loss.at();
  source.set_renewal_fault(MemorySource::Fault::none);
  const auto renewals = source.renewals().size();
  EXPECT_EQ(renewals, 1u);
  (void)lease->release();
  EXPECT_EQ(source.renewals().size(), renewals);
  EXPECT_TRUE(lease->lost().stop_requested());
}

TEST(Lease, IsSignalledLostAtItsNextRenewalWhenTheSourceEndedIt) {
  MemorySource source;
  auto lease = source.acquire(account, {.ttl = 30s});
  auto other = source.acquire(Resource{"accounts/43"}, {.ttl = 6s});
  Loss loss{*other};
  EXPECT_EQ(source.end(Resource{"accounts/43"}), Release::released);
  const auto ended_at = BootClock::now();
  EXPECT_LT(loss.at(), ended_at + 10s);
  EXPECT_EQ(other->release(), Release::not_held);
  EXPECT_FALSE(lease->lost().stop_requested());
}

TEST(Lease, IsSignalledLostAtOnceWhenTheSourceSaysSoBetweenRenewals) {
  MemorySource source;
  auto lease = source.acquire(account, {.ttl = 10min});
  ASSERT_TRUE(lease);
  Loss loss{*lease};
  EXPECT_FALSE(loss.happened());
  const auto told_at = BootClock::now();
  source.tell_lost();
  EXPECT_LT(loss.at() - told_at, 3min);
  EXPECT_TRUE(source.renewals().empty());
  EXPECT_EQ(lease->release(), Release::released);  // what is no longer certain is given back all the same
  auto next = source.acquire(account, {.ttl = 10min});
  ASSERT_TRUE(next);
  EXPECT_GT(Loss{*next}.at(), told_at);
}

// What it shows: a holder that needs time to stop is told until when it may work, so that it has that time
// before the source lets another one in. How: what is told is compared with the moments at which the source
// was asked.
TEST(Lease, TellsUntilWhenItIsHeldLessTheTimeToStop) {
  constexpr auto ttl = 14'000ms;
  constexpr auto time_to_stop = 7'000ms;
  constexpr auto term = ttl - ttl / 10 - time_to_stop;
  MemorySource source;
  auto taken = source.try_acquire(account, Holder{"mine"}, ttl);
  auto& grant = std::get<Grant>(taken);
  grant.asked_at = BootClock::now();
  std::vector<BootClock::time_point> told;
  std::promise<void> is_renewed;
  const auto note = [&](BootClock::time_point moment) {
    told.push_back(moment);
    if (told.size() == 2) is_renewed.set_value();
  };
  Lease lease{source, grant, {.time_to_stop = time_to_stop, .held_until = note}};
  ASSERT_EQ(is_renewed.get_future().wait_for(60s), std::future_status::ready);
  EXPECT_EQ(lease.release(), Release::released);
  EXPECT_EQ(told.at(0), grant.asked_at + term);
  EXPECT_GT(told.at(1), told.at(0));
  EXPECT_LE(told.at(1), source.renewals().at(0) + term);
}

// In how long the kernel is to wake this process by the clock that goes on while the
// machine is suspended.
std::vector<std::chrono::seconds> left_of_boot_timers() {
  constexpr int boottime = 7;
  std::vector<std::chrono::seconds> found;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fdinfo"}) {
    std::ifstream file{entry.path()};
    std::string line;
    int clock = -1;
    long long seconds = 0;
    while (std::getline(file, line)) {
      (void)std::sscanf(line.c_str(), "clockid: %d", &clock);
      (void)std::sscanf(line.c_str(), "it_value: (%lld,", &seconds);
    }
    if (clock == boottime && seconds > 0) found.emplace_back(seconds);
  }
  return found;
}

// What it shows: a loss that comes due while the machine is suspended is signalled as it resumes.
// How: no machine is suspended here; but the kernel shows what it is to wake the process by, and when.
TEST(Lease, IsWokenByTheClockThatItIsJudgedBy) {
  MemorySource source;
  auto lease = source.acquire(account, {.ttl = 30min});
  ASSERT_TRUE(lease);
  const auto deadline = BootClock::now() + 60s;
  auto left = left_of_boot_timers();
  while (left.empty() && BootClock::now() < deadline) {
    std::this_thread::sleep_for(5ms);
    left = left_of_boot_timers();
  }
  ASSERT_FALSE(left.empty());
  EXPECT_LE(left[0], 10min);  // a third of the time to live, or sooner for what another test waited for
}

TEST(Lease, SaysWhyItWasLost) {
  MemorySource source;
  auto lease = source.acquire(account, {.ttl = 30s});
  EXPECT_FALSE(lease->loss());
  Loss loss{*lease};
  source.tell_lost();
  (void)loss.at();
  ASSERT_TRUE(lease->loss());
  EXPECT_EQ(lease->loss()->kind, fenceguard::Loss::Kind::unreachable);
  EXPECT_EQ(lease->loss()->detail, "its connection broke");
}

TEST(Lease, ReleasedItIsFreeAtOnceNotRenewedAndNotCalledLost) {
  MemorySource source;
  auto lease = source.acquire(account, {.ttl = 3s});
  Loss loss{*lease};
  EXPECT_EQ(lease->release(), Release::released);
  EXPECT_FALSE(source.show(account));
  const auto renewals = source.renewals().size();
  // Another lease is renewed meanwhile, the second time when the released one's term would be over.
  auto other = source.acquire(Resource{"accounts/43"}, {.ttl = 6s});
  ASSERT_TRUE(source.wait_for_renewals(renewals + 2));
  EXPECT_FALSE(loss.happened());
  EXPECT_EQ(lease->release(), Release::not_held);
}

TEST(Lease, DestroyedItIsReleased) {
  MemorySource source;
  { auto lease = source.acquire(account); }
  EXPECT_FALSE(source.show(account));
}

TEST(Lease, MovedItIsHeldOn) {
  MemorySource source;
  auto first = source.acquire(account);
  Lease moved{std::move(*first)};
  first.reset();
  EXPECT_TRUE(source.show(account));
  auto second = source.acquire(Resource{"accounts/43"});
  moved = std::move(*second);
  EXPECT_FALSE(source.show(account)) << "the lease that was assigned over is still held";
  EXPECT_TRUE(source.show(Resource{"accounts/43"}));
  EXPECT_EQ(moved.claim().resource, Resource{"accounts/43"});
  auto& same = moved;
  moved = std::move(same);
  EXPECT_TRUE(source.show(Resource{"accounts/43"}));
}

TEST(Lease, AReleaseThatFailsSaysSoOnceAndIsLeftToTheTerm) {
  MemorySource source;
  auto lease = source.acquire(account);
  source.set_release_fault(MemorySource::Fault::unavailable);
  EXPECT_THROW((void)lease->release(), Unavailable);
  EXPECT_EQ(lease->release(), Release::not_held);
  { auto other = source.acquire(Resource{"accounts/43"}); }
}

TEST(Acquire, TriesOnceWithoutAWait) {
  MemorySource source;
  auto lease = source.acquire(account);
  ASSERT_TRUE(lease);
  EXPECT_FALSE(source.acquire(account));
  EXPECT_FALSE(source.acquire(account, {.wait = -1s}));
}

TEST(Acquire, WaitsUntilTheLockIsFreeAndGetsAHigherToken) {
  MemorySource source;
  auto lease = source.acquire(account);
  ASSERT_TRUE(lease);
  auto waiting = std::async(std::launch::async, [&] {
    return source.acquire(account, {.wait = std::chrono::milliseconds::max()})->claim().token;
  });
  EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
  const Token first = lease->claim().token;
  (void)lease->release();
  EXPECT_GT(waiting.get(), first);
}

TEST(Acquire, GivesUpWhenItIsToldTo) {
  MemorySource source;
  auto lease = source.acquire(account);
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    return source.acquire(account, {.wait = 1h, .stop = stop.get_token()}).has_value();
  });
  stop.request_stop();
  EXPECT_FALSE(waiting.get());
}

TEST(Acquire, GivesUpWhenTheWaitIsOver) {
  MemorySource source;
  auto lease = source.acquire(account);
  const auto start = BootClock::now();
  EXPECT_FALSE(source.acquire(account, {.wait = 120ms}));
  EXPECT_GE(BootClock::now() - start, 120ms);
}

TEST(Acquire, ATimeToLiveBeyondTheLimitsIsRefused) {
  MemorySource source;
  for (const auto ttl : {-1ms, 0ms, 9ms, std::chrono::milliseconds{24h + 1ms}}) {
    EXPECT_THROW((void)source.acquire(account, {.ttl = ttl}), InvalidInput) << ttl.count();
  }
  EXPECT_TRUE(source.acquire(account, {.ttl = 24h}));
}

TEST(Acquire, EachGrantHasAHolderOfItsOwnUnlessOneIsNamed) {
  MemorySource source;
  const auto first = source.acquire(account)->claim().holder;
  const auto second = source.acquire(account)->claim().holder;
  EXPECT_NE(first, second);
  EXPECT_EQ(source.acquire(account, {.holder = Holder{"me"}})->claim().holder, Holder{"me"});
}

// A source whose server is away for some of the asks, as told: 'a' away, 'h' held, 'u' unknown, then granted.
class ScriptedSource : public MemorySource {
 public:
  explicit ScriptedSource(std::string script) : script_{std::move(script)} {}

  std::variant<Grant, LockBusy> try_acquire(const Resource& resource, const Holder& holder,
                                            std::chrono::milliseconds ttl) override {
    if (asked_ == script_.size()) return MemorySource::try_acquire(resource, holder, ttl);
    const char next = script_[asked_++];
    if (next == 'h') return LockBusy{1ms};
    if (next == 'u') throw OutcomeUnknown("no answer came");
    throw Unavailable("the server is away");
  }
  [[nodiscard]] std::size_t asked() const { return asked_; }

 private:
  const std::string script_;
  std::size_t asked_ = 0;
};

TEST(Wait, OutlastsAnOutageOfAServerThatWasThereBefore) {
  ScriptedSource source{"haah"};
  EXPECT_TRUE(source.wait_acquire(account, Holder{"mine"}, {.wait = 60s}));
  EXPECT_EQ(source.asked(), 4);
}

TEST(Wait, FailsAtOnceWhereTheServerWasNeverReached) {
  ScriptedSource source{"ah"};
  EXPECT_THROW((void)source.wait_acquire(account, Holder{"mine"}, {.wait = 60s}), Unavailable);
  EXPECT_EQ(source.asked(), 1);
}

TEST(Wait, EndsWithTheOutageWhereItsTimeIsOver) {
  ScriptedSource source{"h" + std::string(1'000, 'a')};
  EXPECT_THROW((void)source.wait_acquire(account, Holder{"mine"}, {.wait = 300ms}), Unavailable);
}

TEST(Wait, AnOutageAtItsEndIsAFaultAndNotANo) {
  AcquireDeadline deadline{{.wait = 5s}};
  EXPECT_TRUE(std::holds_alternative<LockBusy>(
      deadline.ask([]() -> std::variant<Grant, LockBusy> { return LockBusy{1ms}; })));
  const auto away = []() -> std::variant<Grant, LockBusy> { throw Unavailable("away"); };
  EXPECT_TRUE(std::holds_alternative<LockBusy>(deadline.ask(away)));
  std::this_thread::sleep_until(std::chrono::steady_clock::now() + 5s);
  ASSERT_TRUE(deadline.is_over());
  EXPECT_THROW((void)deadline.gives_up(), Unavailable);
}

TEST(Wait, LeavesAnUnknownOutcomeToTheCaller) {
  ScriptedSource source{"hu"};
  EXPECT_THROW((void)source.wait_acquire(account, Holder{"mine"}, {.wait = 60s}), OutcomeUnknown);
}

}  // namespace
}  // namespace fenceguard
