#include "adapters/zookeeper/vigil.hpp"

#include <algorithm>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {

void Bell::ring() {
  const std::scoped_lock lock{mutex_};
  has_rung_ = true;
  changed_.notify_all();
}

bool Bell::wait(const std::stop_token& stop, BootClock::time_point until) {
  // Short, because the clock of a condition variable stands still while the machine is suspended.
  static constexpr std::chrono::nanoseconds look_again = std::chrono::seconds{1};
  std::unique_lock lock{mutex_};
  while (!has_rung_ && !stop.stop_requested()) {
    const auto now = BootClock::now();
    if (now >= until) return false;
    changed_.wait_for(lock, stop, std::min(look_again, until - now), [this] { return has_rung_; });
  }
  return std::exchange(has_rung_, false);
}

void Vigil::ring_when_gone(Session& session, const std::string& path, const std::shared_ptr<Bell>& bell) {
  const Key key{&session, path};
  if (join(key, bell)) return;
  try {
    // Who joined meanwhile is called in vain rather than not at all.
    if (session.get(path, [this, key](bool) { ring(key); }).code != Code::ok) ring(key);
  } catch (const Error&) {
    ring(key);
    throw;
  }
}

// Whether there is a watch, or another thread sets one.
bool Vigil::join(const Key& key, const std::shared_ptr<Bell>& bell) {
  const std::scoped_lock lock{mutex_};
  const auto [place, is_first] = watched_.try_emplace(key);
  auto& bells = place->second;
  std::erase_if(bells, [](const auto& one) { return one.expired(); });
  bells.push_back(bell);
  return !is_first;
}

void Vigil::ring(const Key& key) {
  std::vector<std::weak_ptr<Bell>> bells;
  {
    const std::scoped_lock lock{mutex_};
    const auto found = watched_.find(key);
    if (found == watched_.end()) return;
    bells = std::move(found->second);
    watched_.erase(found);
  }
  for (const auto& one : bells) {
    if (const auto bell = one.lock()) bell->ring();
  }
}

}  // namespace fenceguard::zookeeper
