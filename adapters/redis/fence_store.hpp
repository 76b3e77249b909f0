#pragma once

// The fences of a Redis namespace as a sidecar or a command keeps them. Beside it any number of other guards,
// and of clients that write under their own claims, work on the same fences.
//
// Thread-safe.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "adapters/redis/pool.hpp"
#include "guard/fence_workers.hpp"
#include "guard/storage.hpp"

namespace fenceguard::redis {

class RedisFences : public FenceStore {
 public:
  // Throws Unavailable if the server cannot be reached now. Later it may come and go.
  RedisFences(const Address& address, const StorageOptions& options);
  ~RedisFences() override;

  // As last seen, at most a second or so ago.
  [[nodiscard]] StoreStatus status() const override;

  void advance(Claim claim, Done<Ruling> done) override;
  void revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) override;
  void compact(Token lowest_live, Done<Compaction> done) override;
  void show(Resource resource, Done<FenceView> done) override;
  void list(FenceListing listing, Done<FencePage> done) override;
  void init(std::int64_t floor, Done<std::int64_t> done) override;
  void rebase(Rebase rebase, Done<FenceView> done) override;

 private:
  // Runs function(client), unless nothing may be changed here.
  template <class T, class Function>
  void change(Function function, Done<T> done) {
    if (is_inspecting_) return workers_.refuse<T>(refusal(), std::move(done));
    ask<T>(std::move(function), std::move(done));
  }
  template <class T, class Function>
  void ask(Function function, Done<T> done) {
    workers_.ask<T>([this, function = std::move(function)] { return pool_.with(function); }, std::move(done));
  }
  [[nodiscard]] Fault refusal() const;
  [[nodiscard]] StoreStatus look_around();
  void keep_status();

  const std::string shown_;
  const std::int64_t jump_max_;
  const bool is_inspecting_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable wake_;
  StoreStatus status_;
  bool is_stopping_ = false;

  Pool pool_;
  FenceWorkers workers_;
  std::thread keeper_;
};

}  // namespace fenceguard::redis
