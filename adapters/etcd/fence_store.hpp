#pragma once

// The fences of an etcd namespace as a sidecar or a command keeps them. Beside it any number of other guards,
// and of clients that write under their own claims, work on the same fences.
//
// Thread-safe.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/fence_calls.hpp"
#include "adapters/etcd/guard.hpp"
#include "guard/fence_workers.hpp"
#include "guard/storage.hpp"

namespace fenceguard::etcd {

class EtcdFences : public FenceStore {
 public:
  // Throws Unavailable if the cluster cannot be reached now. Later it may come and go.
  EtcdFences(const Address& address, const StorageOptions& options);
  ~EtcdFences() override;

  // As last seen, at most a second or so ago. The highest token is that of a few fences or the mark when the
  // store was opened, of all that was advanced here since, and the mark as it rises, which others' fences are
  // at most mark_slack above.
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
    if (is_inspecting_) return workers_.refuse(refusal(), std::move(done));
    workers_.ask<T>(std::move(function), std::move(done));
  }
  [[nodiscard]] Fault refusal() const;
  void see(std::int64_t token);
  void refresh();
  void keep_status();

  Client client_;
  FenceCalls calls_;
  Guard guard_;
  const std::int64_t jump_max_;
  const bool is_inspecting_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable wake_;
  StoreStatus status_;
  std::int64_t looks_ = 0;      // begun
  std::int64_t last_look_ = 0;  // the one that status_ is from
  std::int64_t highest_ = 0;
  bool is_highest_known_ = false;
  bool is_stopping_ = false;

  FenceWorkers workers_;
  std::thread keeper_;
};

}  // namespace fenceguard::etcd
