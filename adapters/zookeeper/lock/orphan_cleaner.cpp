#include "adapters/zookeeper/lock/orphan_cleaner.hpp"

#include <algorithm>
#include <chrono>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

constexpr std::chrono::milliseconds try_again{50};
constexpr std::chrono::milliseconds try_again_max{5'000};
constexpr int refusals_max = 100;

}  // namespace

OrphanCleaner::OrphanCleaner(LockClient& calls) : calls_{calls} {
  thread_ = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
}

void OrphanCleaner::remove(QueueEntry entry) {
  const std::scoped_lock lock{mutex_};
  // What is to be looked for takes longer, and perhaps there is nothing.
  auto place = entry.path.empty() ? left_.end() : left_.begin();
  left_.insert(place, Left{std::move(entry)});
  changed_.notify_all();
}

void OrphanCleaner::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  const std::scoped_lock lock{mutex_};
  left_.clear();
}

void OrphanCleaner::run(const std::stop_token& stop) {
  std::unique_lock lock{mutex_};
  while (!stop.stop_requested()) {
    if (!changed_.wait(lock, stop, [this] { return !left_.empty(); })) return;
    std::list<Left> now;
    now.swap(left_);
    lock.unlock();
    for (auto one = now.begin(); one != now.end() && !stop.stop_requested();) {
      one = sweep(*one) ? now.erase(one) : std::next(one);
    }
    lock.lock();
    if (now.empty()) continue;
    const bool has_new = !left_.empty();
    left_.splice(left_.end(), now);
    if (!has_new) changed_.wait_until(lock, stop, BootClock::now() + try_again, [] { return false; });
  }
}

bool OrphanCleaner::sweep(Left& one) {
  const auto session = one.entry.session.lock();
  if (!session) return true;
  const auto state = session->state();
  if (state != Session::State::connected) return state != Session::State::connecting;
  if (BootClock::now() < one.next) return false;
  try {
    remove_all_of(*session, one.entry);
    return true;
  } catch (const Error&) {
    const auto pause = std::min(try_again_max, try_again * (1 << std::min(one.refusals, 10)));
    one.next = BootClock::now() + pause;
    return ++one.refusals >= refusals_max;
  }
}

void OrphanCleaner::remove_all_of(Session& session, const QueueEntry& entry) {
  if (!entry.path.empty()) {
    LockClient::remove(session, entry.path);
    return;
  }
  for (const auto& path : calls_.find(session, entry.lock, entry.guid)) {
    LockClient::remove(session, path);
  }
}

}  // namespace fenceguard::zookeeper
