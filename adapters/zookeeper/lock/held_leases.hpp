#pragma once

// HeldLeases: the leases that were granted here. Each lives by the session that took it, and no longer than
// the session is connected in our eyes; and each ends when it was not renewed for its time to live, which a
// thread here sees to. What ended is told to the callers of lost(), and its entry is removed.
//
// Thread safety: all calls may be made from any thread at once; none asks a server.

#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "adapters/zookeeper/lock/orphan_cleaner.hpp"
#include "adapters/zookeeper/wire/session_manager.hpp"
#include "guard/claim.hpp"
#include "guard/source/boot_condition.hpp"

namespace fenceguard::zookeeper {

struct HeldLease {
  Claim claim;
  QueueEntry entry;
  Since since;  // before it was seen to be first
  BootClock::time_point expires_at{};
};

class HeldLeases {
 public:
  // REQUIRES: cleaner outlives it.
  explicit HeldLeases(OrphanCleaner& cleaner);

  // False: the connection broke meanwhile, and the lease is none.
  [[nodiscard]] bool add(const HeldLease& lease);

  [[nodiscard]] std::optional<HeldLease> find(const Resource& resource);
  // The lease of exactly this claim.
  [[nodiscard]] std::optional<HeldLease> find(const Claim& claim);

  // The lease of claim goes on until then, or longer where it would anyway and may not be shortened. False:
  // it is over.
  enum class Shorten { no, yes };
  [[nodiscard]] bool extend(const Claim& claim, BootClock::time_point until, Shorten shorten);

  // The lease of claim is a lease no longer; its entry is the caller's to remove.
  [[nodiscard]] std::optional<HeldLease> release(const Claim& claim);

  // The lease of claim is lost.
  void lose(const Claim& claim);
  // The lease that lives by this node is lost, if there is one.
  void lose_node(const std::string& path);
  // All that live by this session are lost.
  void lose_all(const SessionLife& life);

  // Requested once the lease of claim is lost, as it is where it is not known here.
  [[nodiscard]] std::stop_token lost(const Claim& claim);

  void stop();

 private:
  struct Kept {
    HeldLease lease;
    std::stop_source lost;
  };
  using Map = std::map<Resource, Kept>;

  [[nodiscard]] Map::iterator find_claim(const Claim& claim);
  void expire(const std::stop_token& stop);
  template <class Is>
  void lose_where(const Is& is);
  void end(std::vector<Kept> ended);

  OrphanCleaner& cleaner_;
  std::mutex mutex_;
  BootCondition changed_;
  bool has_changed_ = false;
  Map kept_;
  std::jthread expirer_;
};

}  // namespace fenceguard::zookeeper
