#include "guard/store/blocking_fence_store.hpp"

#include <algorithm>
#include <utility>

namespace fenceguard {
namespace {

// So many resources may wait in the server for older writes while others are still served.
constexpr std::size_t change_threads = 8;
constexpr std::size_t look_threads = 2;

constexpr std::chrono::seconds refresh_every{1};
constexpr std::chrono::seconds reply_expected{5};
// An advance may wait for drain, which the server sets, and some 10 s more for what it cut.
constexpr std::chrono::seconds change_max{120};
constexpr std::chrono::seconds look_max{20};
// For what runs at the end.
constexpr std::chrono::seconds grace{5};
constexpr std::chrono::milliseconds cancel_every{100};

// The fault now being handled, in one line: a client library tells of each host on a line of its own.
Fault one_line_fault() {
  Fault fault = current_fault();
  std::ranges::replace_if(
      fault.message, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return fault;
}

template <class T, class Call>
Outcome<T> outcome_of(const Call& call, FenceDriver& driver) {
  try {
    return call(driver);
  } catch (...) {
    return one_line_fault();
  }
}

}  // namespace

BlockingFenceStore::Workers::Workers(std::size_t threads, const Setup& setup)
    : executor{threads, setup.shown} {
  for (std::size_t i = 0; i < threads; ++i) drivers.push_back(setup.make_driver());
}

void BlockingFenceStore::Workers::cancel_older_than(std::chrono::milliseconds limit) {
  for (auto& driver : drivers) driver->cancel_older_than(limit);
}

void BlockingFenceStore::Workers::end() {
  executor.stop();
  // A driver may have to be told again: one that is still connecting has nothing to be cancelled yet.
  for (std::chrono::milliseconds limit = grace; !executor.wait_until_idle(limit); limit = cancel_every)
    cancel_older_than(std::chrono::milliseconds{0});
}

BlockingFenceStore::BlockingFenceStore(const Setup& setup)
    : shown_{setup.shown},
      is_inspecting_{setup.mode == StorageOptions::Mode::inspect},
      objection_{setup.objection},
      changes_{is_inspecting_ ? 0 : change_threads, setup},
      looks_{look_threads, setup},
      status_looks_{1, setup} {
  auto& driver = *status_looks_.drivers.front();
  const auto connect = [](FenceDriver& at) {
    at.connect();
    return true;
  };
  (void)outcome_of<bool>(connect, driver).value_or_raise();
  look(driver);
  keeper_ = std::thread{[this] { keep_status(); }};
}

BlockingFenceStore::~BlockingFenceStore() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_all();
  keeper_.join();
  changes_.end();
  looks_.end();
  status_looks_.end();
}

StoreStatus BlockingFenceStore::status() const {
  const std::scoped_lock lock{mutex_};
  return seen_.status();
}

void BlockingFenceStore::SeenStatus::show(std::int64_t look, Outcome<StoreStatus> seen) {
  if (look < look_shown_) return;
  look_shown_ = look;
  if (!seen.ok()) return fail(seen.fault().message);
  status_ = std::move(seen.value());
  if (noted_after_ >= look) status_.highest = std::max(status_.highest, noted_highest_);
}

void BlockingFenceStore::SeenStatus::note_highest(std::int64_t token) {
  status_.highest = std::max(status_.highest, token);
  if (std::exchange(noted_after_, looks_begun_) != looks_begun_) noted_highest_ = 0;
  noted_highest_ = std::max(noted_highest_, token);
}

void BlockingFenceStore::SeenStatus::fail(std::string reason) {
  status_.state = StoreState::failed;
  status_.reason = std::move(reason);
}

void BlockingFenceStore::look(FenceDriver& driver) {
  const auto number = [this] {
    const std::scoped_lock lock{mutex_};
    return seen_.begin_look();
  }();
  auto seen = outcome_of<StoreStatus>([](FenceDriver& at) { return at.status(); }, driver);
  const std::scoped_lock lock{mutex_};
  seen_.show(number, std::move(seen));
}

void BlockingFenceStore::note_highest(std::int64_t token) {
  const std::scoped_lock lock{mutex_};
  seen_.note_highest(token);
}

// Has the server looked at now and then, and calls cancelled that take too long. Never waits for it itself.
void BlockingFenceStore::keep_status() {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, refresh_every, [this] { return is_stopping_; })) {
    const auto now = BootClock::now();
    const bool is_due = !asked_at_;
    if (is_due) asked_at_ = now;
    if (now - *asked_at_ > reply_expected) seen_.fail(shown_ + " does not answer");
    lock.unlock();
    changes_.cancel_older_than(change_max);
    looks_.cancel_older_than(look_max);
    status_looks_.cancel_older_than(look_max);
    if (is_due) {
      const auto run = [this](std::size_t worker, const Fault* refusal) {
        if (refusal == nullptr) look(*status_looks_.drivers[worker]);
        const std::scoped_lock guard{mutex_};
        asked_at_.reset();
      };
      status_looks_.executor.post({.run = run});
    }
    lock.lock();
  }
}

template <class T, class Call>
void BlockingFenceStore::submit(Workers& workers, Call call, Done<T> done, std::string order) {
  auto run = [&workers, call = std::move(call), done = answers_.wrap<T>(std::move(done))](
                 std::size_t worker, const Fault* refusal) {
    done(refusal != nullptr ? Outcome<T>{*refusal} : outcome_of<T>(call, *workers.drivers[worker]));
  };
  workers.executor.post({.run = std::move(run), .order = std::move(order)});
}

template <class T, class Call>
void BlockingFenceStore::change(Call call, Done<T> done, std::string order) {
  if (is_inspecting_) {
    Fault refusal{FaultKind::unavailable, shown_ + " is only looked at here"};
    return answers_.give<T>(std::move(refusal), std::move(done));
  }
  submit<T>(changes_, std::move(call), std::move(done), std::move(order));
}

void BlockingFenceStore::advance(Claim claim, Done<Ruling> done) {
  claim.sequence.reset();
  auto order = claim.resource.name();
  const auto call = [this, claim = std::move(claim)](FenceDriver& driver) {
    auto ruling = driver.advance(claim);
    note_highest(ruling.highest);
    return ruling;
  };
  change<Ruling>(call, std::move(done), std::move(order));
}

void BlockingFenceStore::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) {
  auto order = resource.name();
  const auto call = [this, resource = std::move(resource), lease = std::move(lease)](FenceDriver& driver) {
    auto view = driver.revoke(resource, lease);
    note_highest(view.highest());
    return view;
  };
  change<FenceView>(call, std::move(done), std::move(order));
}

void BlockingFenceStore::rebase(Rebase rebase, Done<FenceView> done) {
  auto order = rebase.resource.name();
  const auto call = [this, rebase = std::move(rebase)](FenceDriver& driver) {
    auto view = driver.rebase(rebase);
    note_highest(view.highest());
    return view;
  };
  change<FenceView>(call, std::move(done), std::move(order));
}

void BlockingFenceStore::compact(Token lowest_live, Done<Compaction> done) {
  change<Compaction>([lowest_live](FenceDriver& driver) { return driver.compact(lowest_live); },
                     std::move(done));
}

void BlockingFenceStore::init(std::int64_t floor, Done<std::int64_t> done) {
  const auto call = [this, floor](FenceDriver& driver) {
    const auto result = driver.init(floor);
    look(driver);
    return result;
  };
  change<std::int64_t>(call, std::move(done));
}

void BlockingFenceStore::show(Resource resource, Done<FenceView> done) {
  submit<FenceView>(
      looks_, [resource = std::move(resource)](FenceDriver& driver) { return driver.show(resource); },
      std::move(done));
}

void BlockingFenceStore::list(FenceListing listing, Done<FencePage> done) {
  submit<FencePage>(
      looks_, [listing = std::move(listing)](FenceDriver& driver) { return driver.list(listing); },
      std::move(done));
}

namespace {

class ServerStorage : public Storage {
 public:
  explicit ServerStorage(const ServerStorageSetup& setup)
      : fences_{setup.fences}, initialises_itself_{setup.initialises_itself} {
    if (setup.fences.mode == StorageOptions::Mode::guard) source_ = setup.open_source();
  }

  FenceStore& fences() override { return fences_; }
  TokenSource* own_source() override { return source_.get(); }
  bool initialises_itself() const noexcept override { return initialises_itself_; }

 private:
  BlockingFenceStore fences_;
  std::unique_ptr<TokenSource> source_;
  const bool initialises_itself_;
};

}  // namespace

std::unique_ptr<Storage> open_server_storage(const ServerStorageSetup& setup) {
  return std::make_unique<ServerStorage>(setup);
}

}  // namespace fenceguard
