#include <algorithm>
#include <atomic>
#include <mutex>

#include "tests/etcd/source/source.hpp"

namespace fenceguard::test {
namespace {

// What was granted, by all, with when it was asked for and when it was answered.
class Grants {
 public:
  struct Entry {
    std::int64_t token;
    BootClock::time_point begin;
    BootClock::time_point end;
  };

  void add(std::size_t lock, const Entry& entry) {
    const std::scoped_lock guard{mutex_};
    entries_[lock].push_back(entry);
  }
  [[nodiscard]] std::size_t count() {
    const std::scoped_lock guard{mutex_};
    return entries_[0].size() + entries_[1].size();
  }

  // Per lock no number twice, and none that is lower than one that was answered before it was asked for.
  void expect_rising() {
    const std::scoped_lock guard{mutex_};
    for (auto& entries : entries_) {
      std::ranges::sort(entries, {}, &Entry::token);
      auto latest_begin = BootClock::time_point{};
      for (std::size_t i = 0; i < entries.size(); ++i) {
        if (i > 0) {
          EXPECT_GT(entries[i].token, entries[i - 1].token) << "granted twice";
        }
        // Whoever has a higher token was not answered before this one, or one below it, was asked for.
        EXPECT_GE(entries[i].end, latest_begin) << "token " << entries[i].token << " came late";
        latest_begin = std::max(latest_begin, entries[i].begin);
      }
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Entry> entries_[2];
};

class Leader : public testing::Test {
 protected:
  // Takes and releases two locks as fast as it can, from two processes' worth of sources.
  void take_turns(const std::stop_token& stop, std::size_t worker) {
    const auto source = open(cluster_.url("?timeout=1s"));
    const std::size_t lock_number = worker % 2;
    const Resource mine{"busy/" + std::to_string(lock_number)};
    while (!stop.stop_requested()) {
      const auto begin = BootClock::now();
      try {
        const auto grant = source->wait_acquire(mine, Holder::random(),
                                                {.ttl = 2 * least_ttl, .wait = Ms{10'000}, .stop = stop});
        if (!grant) continue;
        grants_.add(lock_number, {grant->claim.token.value(), begin, BootClock::now()});
        (void)source->release(grant->claim);
      } catch (const Unavailable&) {
      } catch (const OutcomeUnknown&) {
      }
    }
  }

  void wait_for_grants(std::size_t more) {
    const auto wanted = grants_.count() + more;
    wait_until([&] { return grants_.count() >= wanted; });
  }

  EtcdCluster cluster_{3};
  Grants grants_;
};

TEST_F(Leader, KilledUnderLoadAgainAndAgainNeverLetsATokenFall) {
  const int kills = std::max(5, scaled(50));
  std::vector<std::jthread> workers;
  for (std::size_t i = 0; i < 4; ++i)
    workers.emplace_back([this, i](const std::stop_token& stop) { take_turns(stop, i); });
  for (int i = 0; i < kills; ++i) {
    const auto leader = cluster_.leader();
    wait_for_grants(3);
    cluster_.member(leader).kill();
    wait_for_grants(1);
    cluster_.member(leader).start();
    cluster_.wait_until_serving();
  }
  workers.clear();
  grants_.expect_rising();
  RecordProperty("grants", std::to_string(grants_.count()));
}

TEST_F(Leader, StoppedUnderLoadIsReplacedAndWakesUpHarmless) {
  std::vector<std::jthread> workers;
  for (std::size_t i = 0; i < 4; ++i)
    workers.emplace_back([this, i](const std::stop_token& stop) { take_turns(stop, i); });
  for (int i = 0; i < std::max(1, scaled(5)); ++i) {
    const auto leader = cluster_.leader();
    wait_for_grants(3);
    cluster_.member(leader).pause();
    wait_for_grants(10);
    cluster_.member(leader).resume();
    wait_for_grants(10);
  }
  workers.clear();
  grants_.expect_rising();
}

TEST_F(Leader, WithoutAMajorityNothingIsGrantedAndWithItAgainEverythingIs) {
  const auto patient = open(cluster_.url());
  const auto before = take(*patient, "before").claim;
  patient->release(before);
  auto held = patient->try_acquire(Resource{"held"}, Holder{"holder"}, long_ttl);
  const auto held_claim = std::get<Grant>(held).claim;
  const auto source = open(cluster_.url("?timeout=500ms"));
  const auto renewal = [&]() -> std::optional<Renewal> {
    try {
      return source->renew(held_claim, long_ttl);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  wait_until([&] { return renewal() == Renewal::renewed; });  // by now it knows the lease
  cluster_.member(1).kill();
  cluster_.member(2).kill();
  for (int i = 0; i < 6; ++i) {
    // Neither granted nor held: nobody can know.
    EXPECT_THROW((void)source->try_acquire(resource, Holder::random(), least_ttl), Error);
    EXPECT_THROW((void)source->renew(held_claim, long_ttl), Error);
    EXPECT_THROW((void)source->show(Resource{"held"}), Unavailable);
    EXPECT_THROW(source->raise(resource, Token{1}), Unavailable);
    EXPECT_THROW((void)source->draw(), OutcomeUnknown);  // it would write
  }
  cluster_.member(1).start();
  cluster_.member(2).start();
  cluster_.wait_until_serving();
  std::optional<Grant> after;
  wait_until([&] {
    try {
      after = source->wait_acquire(resource, Holder::random(), {.ttl = long_ttl, .wait = limit});
      return after.has_value();
    } catch (const Error&) {
      return false;
    }
  });
  EXPECT_GT(after->claim.token, before.token);
  std::optional<Renewal> renewed;
  wait_until([&] { return (renewed = renewal()).has_value(); });
  EXPECT_EQ(renewed, Renewal::renewed);
}

}  // namespace
}  // namespace fenceguard::test
