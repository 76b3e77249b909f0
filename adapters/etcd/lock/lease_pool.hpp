#pragma once

// LeasePool: etcd leases that this process made, under which there is no key any more, for its next grants. A
// grant under one of them needs a keep-alive, which the leader answers by itself, in place of a grant and a
// revocation, which go through raft.
//
// Only the process that made a lease puts it here or revokes it, and only once its own transaction has
// removed the lease's key. So whatever others, or late requests, do about an earlier grant cannot end the
// lease of a later one.
//
// Bounded in number, in time to live and in age. What is not taken again runs out by itself, also where the
// process has ended.
//
// Thread-safe.

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "guard/support/clock.hpp"

namespace fenceguard::etcd {

struct EtcdLease {
  std::int64_t id = 0;
  std::chrono::milliseconds ttl{};  // as granted
  std::chrono::seconds asked{};     // 0: another process made it
  BootClock::time_point made_at{};  // if this one made it
  bool is_reusable = false;         // made here, and no late request can put a key under it

  [[nodiscard]] bool is_own() const noexcept { return asked > std::chrono::seconds{0}; }
};

class LeasePool {
 public:
  static constexpr std::size_t leases_max = 64;
  static constexpr std::chrono::seconds ttl_max{60};
  // A snapshot that is restored may bring back a key under a lease: ever new grants must not keep it alive.
  static constexpr std::chrono::seconds age_max{60};

  // A lease made for the same time to live, in whole seconds as etcd counts. It may have run out.
  [[nodiscard]] std::optional<EtcdLease> take(std::chrono::milliseconds ttl);

  // False: it is not for the pool, or there is no room, and the caller revokes it. REQUIRES: no key is under
  // the lease, and no other thread refers to it.
  [[nodiscard]] bool put(const EtcdLease& lease);

 private:
  struct Entry {
    EtcdLease lease;
    BootClock::time_point ends_at;
  };

  void drop_ended(BootClock::time_point now);
  // What was there before a fork is the parent's: a child that used it too would end its grants.
  void drop_inherited() noexcept;

  std::mutex mutex_;
  pid_t process_ = ::getpid();
  std::vector<Entry> entries_;  // the last to come is the first to be taken
};

}  // namespace fenceguard::etcd
