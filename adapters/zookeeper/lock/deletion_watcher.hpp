#pragma once

// DeletionWatcher: which waiters wait for which node to go. However many wait for it, or have given up
// meanwhile, there is one watch on a node: a watch cannot be taken back, and one for each short wait would
// pile up.
//
// Thread-safe. It outlives every session that it was given.

#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "adapters/zookeeper/session.hpp"
#include "guard/source/boot_condition.hpp"

namespace fenceguard::zookeeper {

// Ends a wait: told by a watch, by another thread, or by its own stop.
class Event {
 public:
  void set();
  // Whether it rang before the moment has come or stop was requested. Once.
  [[nodiscard]] bool wait(const std::stop_token& stop, BootClock::time_point until);

 private:
  std::mutex mutex_;
  BootCondition changed_;
  bool is_set_ = false;
};

class DeletionWatcher {
 public:
  // Has event rung when the node has gone, or has perhaps; at once, if it is not there. Throws Unavailable.
  void set_when_gone(Session& session, const std::string& path, const std::shared_ptr<Event>& event);

 private:
  using Key = std::pair<const Session*, std::string>;

  [[nodiscard]] bool join(const Key& key, const std::shared_ptr<Event>& event);
  void set(const Key& key);

  std::mutex mutex_;
  std::map<Key, std::vector<std::weak_ptr<Event>>> watched_;  // a session's end empties it
};

}  // namespace fenceguard::zookeeper
