#pragma once

// OrphanCleaner: removes entries that no client wants any more and that could not be removed at once: those
// of leases that were lost, and those of which it is not known, after a lost answer, whether they were made.
// It goes on until each is gone, or its session is over, which removes it too; ever more seldom where it
// cannot be done, and not for ever: what is refused a hundred times is left to the end of its session.
//
// Thread safety: all calls may be made from any thread at once.

#include <list>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "adapters/zookeeper/lock/lock_client.hpp"
#include "guard/source/boot_condition.hpp"

namespace fenceguard::zookeeper {

// An entry of ours.
struct QueueEntry {
  std::weak_ptr<Session> session;  // that made it
  std::string lock;
  std::string guid;
  std::string path;  // empty: not known, and perhaps there is none
};

class OrphanCleaner {
 public:
  // REQUIRES: calls outlives it.
  explicit OrphanCleaner(LockClient& calls);

  void remove(QueueEntry entry);

  // What is not removed yet is left to the end of its session.
  void stop();

 private:
  struct Left {
    QueueEntry entry;
    int refusals = 0;
    BootClock::time_point next{};  // not before then
  };

  void run(const std::stop_token& stop);
  // Whether nothing is left to be done about it.
  [[nodiscard]] bool sweep(Left& one);
  void remove_all_of(Session& session, const QueueEntry& entry);

  LockClient& calls_;
  std::mutex mutex_;
  BootCondition changed_;
  std::list<Left> left_;  // those of which the path is known come first
  std::jthread thread_;
};

}  // namespace fenceguard::zookeeper
