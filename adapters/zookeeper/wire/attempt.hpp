#pragma once

// Attempt: one entry's way to the lock, from the making of its node to the grant; or to the node's
// removal, where it is given up. What a broken connection leaves uncertain is found out before anything else
// is done: the session is the same, so the node may be there, and its GUID tells; or the session has ended,
// and the node with it.
//
// One thread at a time.

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "adapters/zookeeper/lock/deletion_watcher.hpp"
#include "adapters/zookeeper/lock/held_leases.hpp"
#include "adapters/zookeeper/lock/lock_client.hpp"
#include "adapters/zookeeper/wire/session_manager.hpp"
#include "guard/token_source.hpp"

namespace fenceguard::zookeeper {

class Attempt {
 public:
  struct Parts {
    SessionManager& sessions;
    LockClient& calls;
    HeldLeases& leases;
    OrphanCleaner& cleaner;
    DeletionWatcher& watcher;
  };

  // Of options, ttl and stop count here.
  Attempt(Parts parts, const Resource& resource, const Holder& holder, const AcquireOptions& options);
  // Removes the node, unless it was granted the lock.
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // The grant, if no entry is before it. Throws Unavailable: nothing is held; also where no server is there
  // and stop is requested.
  [[nodiscard]] std::optional<Grant> ask();

  // Has event rung when the one before it has gone, or has perhaps. REQUIRES: ask() found one. Throws
  // Unavailable.
  void set_when_next(const std::shared_ptr<Event>& event);

  // The path of the one that ask() found before it.
  [[nodiscard]] const std::optional<std::string>& before() const noexcept { return before_; }

 private:
  void stay_connected();
  [[nodiscard]] std::optional<Grant> ask_once();
  void find();
  [[nodiscard]] LockClient::Place enter();
  [[nodiscard]] LockClient::Place look();
  [[nodiscard]] Session::Watch watch_for(const std::shared_ptr<std::atomic<bool>>& gone) const;
  void forget_node();

  const Parts parts_;
  const Resource resource_;
  const Holder holder_;
  const std::chrono::milliseconds ttl_;
  const std::stop_token stop_;
  const std::string guid_;
  const std::string lock_;
  ConnectionGeneration generation_;
  std::string path_;                         // empty: not known
  bool may_exist_ = false;                   // though its path is not known
  bool is_granted_ = false;                  // the node belongs to a lease
  std::shared_ptr<std::atomic<bool>> gone_;  // told by the node's watch; null: it has none for certain
  std::optional<std::string> before_;
};

}  // namespace fenceguard::zookeeper
