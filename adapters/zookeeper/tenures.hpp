#pragma once

// Tenures: the leases that were granted here. Each lives by the session that took it, and no longer than the
// session is connected in our eyes; and each ends when nobody renewed it for its time to live, which a thread
// here sees to. What ended is told to whoever asked for lost(), and its contender is removed.
//
// Thread safety: all calls may be made from any thread at once; none asks a server.

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "adapters/zookeeper/session_keeper.hpp"
#include "adapters/zookeeper/sweeper.hpp"
#include "guard/claim.hpp"
#include "guard/clock.hpp"

namespace fenceguard::zookeeper {

struct Tenure {
  Claim claim;
  Contender contender;
  Since since;  // before it was seen to be first
  BootClock::time_point expires_at{};
};

class Tenures {
 public:
  // REQUIRES: sweeper outlives it.
  explicit Tenures(Sweeper& sweeper);

  // False: the connection broke meanwhile, and the lease is none.
  [[nodiscard]] bool add(const Tenure& tenure);

  [[nodiscard]] std::optional<Tenure> find(const Resource& resource);
  // The tenure of exactly this claim.
  [[nodiscard]] std::optional<Tenure> find(const Claim& claim);

  // The lease of claim goes on until then, or longer where it would anyway and may not be shortened. False:
  // it is over.
  enum class Shorten { no, yes };
  [[nodiscard]] bool extend(const Claim& claim, BootClock::time_point until, Shorten shorten);

  // The lease of claim is a lease no longer; its contender is the caller's to remove.
  [[nodiscard]] std::optional<Tenure> release(const Claim& claim);

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
    Tenure tenure;
    std::stop_source lost;
  };
  using Map = std::map<Resource, Kept>;

  [[nodiscard]] Map::iterator find_claim(const Claim& claim);
  void expire(const std::stop_token& stop);
  template <class Is>
  void lose_where(const Is& is);
  void end(std::vector<Kept> ended);

  Sweeper& sweeper_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool has_changed_ = false;
  Map kept_;
  std::jthread expirer_;
};

}  // namespace fenceguard::zookeeper
