#pragma once

// The fences of a ZooKeeper namespace as a sidecar or a command keeps them. Beside it any number of other
// guards, and of services that write under their own claims, work on the same fences.
//
// Thread-safe.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "adapters/zookeeper/guard.hpp"
#include "guard/fence_workers.hpp"
#include "guard/storage.hpp"

namespace fenceguard::zookeeper {

class ZooKeeperFences : public FenceStore {
 public:
  // Throws Unavailable if no server can be reached now. Later they may come and go.
  ZooKeeperFences(Address address, const StorageOptions& options);
  ~ZooKeeperFences() override;

  // As last seen, a second or so ago; where no server answers, it takes the address's timeout to say so.
  // highest is what this store has seen: a few fences or the mark when it was opened, its own calls since,
  // and the mark as it rises, which others' fences are at most HighestMark::slack above.
  [[nodiscard]] StoreStatus status() const override;

  void advance(Claim claim, Done<Ruling> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override;
  void compact(Token lowest_live, Done<Compaction> done) override;
  void show(Resource resource, Done<FenceView> done) override;
  void list(FenceListing listing, Done<FencePage> done) override;
  void init(std::int64_t floor, Done<std::int64_t> done) override;
  void rebase(Rebase rebase, Done<FenceView> done) override;

 private:
  // Runs function(), unless nothing may be changed here.
  template <class T, class Function>
  void change(Function function, Done<T> done) {
    if (is_inspecting_) return workers_.refuse<T>(refusal(), std::move(done));
    workers_.ask<T>(std::move(function), std::move(done));
  }
  [[nodiscard]] Fault refusal() const;
  [[nodiscard]] StoreStatus look_around();
  void refresh_status();
  void keep_status();

  const std::int64_t jump_max_;
  const bool is_inspecting_;
  Client client_;
  Guard guard_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable wake_;
  StoreStatus status_;
  std::uint64_t looks_begun_ = 0;
  std::uint64_t look_shown_ = 0;  // the one that status_ is of
  bool is_stopping_ = false;

  FenceWorkers workers_;
  std::thread keeper_;
};

}  // namespace fenceguard::zookeeper
