#pragma once

// Attempt: one contender's way to the lock, from the making of its node to the grant; or to the node's
// removal, where it is given up. What a broken connection leaves uncertain is found out before anything else
// is done: the session is the same, so the node may be there, and its GUID tells; or the session has ended,
// and the node with it.
//
// One thread at a time.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "adapters/zookeeper/lock_calls.hpp"
#include "adapters/zookeeper/session_keeper.hpp"
#include "adapters/zookeeper/tenures.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::zookeeper {

// Ends a wait: told by a watch, by another thread, or by its own stop.
class Bell {
 public:
  void ring();
  // Whether it rang before the moment has come or stop was requested. Once.
  [[nodiscard]] bool wait(const std::stop_token& stop, BootClock::time_point until);

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool has_rung_ = false;
};

class Attempt {
 public:
  struct Parts {
    SessionKeeper& sessions;
    LockCalls& calls;
    Tenures& tenures;
    Sweeper& sweeper;
  };

  // For whom, and how: of options, ttl and stop count here.
  Attempt(Parts parts, const Resource& resource, const Holder& holder, const AcquireOptions& options);
  // Removes the node, unless it was granted the lock.
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // The grant, if nobody is before it. Throws Unavailable: nothing is held; also where no server is there and
  // stop is requested.
  [[nodiscard]] std::optional<Grant> ask();

  // Has bell rung when the one before it has gone, or has perhaps. REQUIRES: ask() found one. Throws
  // Unavailable.
  void ring_when_next(const std::shared_ptr<Bell>& bell);

 private:
  void stay_connected();
  void find_or_enter();
  [[nodiscard]] std::optional<Grant> ask_once();

  const Parts parts_;
  const Resource resource_;
  const Holder holder_;
  const std::chrono::milliseconds ttl_;
  const std::stop_token stop_;
  const std::string guid_;
  const std::string lock_;
  Stay stay_;
  std::string path_;         // empty: not known
  bool may_exist_ = false;   // though its path is not known
  bool is_granted_ = false;  // the node belongs to a tenure
  std::optional<std::string> before_;
};

}  // namespace fenceguard::zookeeper
