#include "adapters/zookeeper/sweeper.hpp"

#include <chrono>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

constexpr std::chrono::milliseconds try_again{50};

}  // namespace

Sweeper::Sweeper(LockCalls& calls) : calls_{calls} {
  thread_ = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
}

void Sweeper::remove(Contender contender) {
  const std::scoped_lock lock{mutex_};
  left_.push_back(std::move(contender));
  changed_.notify_all();
}

void Sweeper::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  left_.clear();
}

void Sweeper::run(const std::stop_token& stop) {
  std::unique_lock lock{mutex_};
  while (!stop.stop_requested()) {
    if (!changed_.wait(lock, stop, [this] { return !left_.empty(); })) return;
    std::list<Contender> now;
    now.swap(left_);
    lock.unlock();
    for (auto one = now.begin(); one != now.end() && !stop.stop_requested();) {
      one = sweep(*one) ? now.erase(one) : std::next(one);
    }
    lock.lock();
    if (now.empty()) continue;
    left_.splice(left_.begin(), now);
    changed_.wait_for(lock, stop, try_again, [] { return false; });
  }
}

bool Sweeper::sweep(const Contender& contender) {
  const auto kept = contender.session.lock();
  if (!kept) return true;
  auto& session = *kept;
  const auto state = session.state();
  if (state != Session::State::connected) return state != Session::State::connecting;
  try {
    if (contender.path.empty()) {
      for (const auto& path : calls_.find(session, contender.lock, contender.guid)) {
        LockCalls::remove(session, path);
      }
    } else {
      LockCalls::remove(session, contender.path);
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace fenceguard::zookeeper
