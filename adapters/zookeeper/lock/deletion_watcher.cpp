#include "adapters/zookeeper/lock/deletion_watcher.hpp"

#include "guard/error.hpp"

namespace fenceguard::zookeeper {

void Event::set() {
  const std::scoped_lock lock{mutex_};
  is_set_ = true;
  changed_.notify_all();
}

bool Event::wait(const std::stop_token& stop, BootClock::time_point until) {
  std::unique_lock lock{mutex_};
  changed_.wait_until(lock, stop, until, [this] { return is_set_; });
  return std::exchange(is_set_, false);
}

void DeletionWatcher::set_when_gone(Session& session, const std::string& path,
                                    const std::shared_ptr<Event>& event) {
  const Key key{&session, path};
  if (join(key, event)) return;
  try {
    // Prefer spurious to missed wake-ups.
    if (session.get(path, [this, key](bool) { set(key); }).code != Code::ok) set(key);
  } catch (const Error&) {
    set(key);
    throw;
  }
}

// Whether there is a watch, or another thread sets one.
bool DeletionWatcher::join(const Key& key, const std::shared_ptr<Event>& event) {
  const std::scoped_lock lock{mutex_};
  const auto [place, is_first] = watched_.try_emplace(key);
  auto& events = place->second;
  std::erase_if(events, [](const auto& one) { return one.expired(); });
  events.push_back(event);
  return !is_first;
}

void DeletionWatcher::set(const Key& key) {
  std::vector<std::weak_ptr<Event>> events;
  {
    const std::scoped_lock lock{mutex_};
    const auto found = watched_.find(key);
    if (found == watched_.end()) return;
    events = std::move(found->second);
    watched_.erase(found);
  }
  for (const auto& one : events) {
    if (const auto event = one.lock()) event->set();
  }
}

}  // namespace fenceguard::zookeeper
