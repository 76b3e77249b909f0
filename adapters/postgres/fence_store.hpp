#pragma once

// The fences of a PostgreSQL database as a sidecar or a command keeps them: every call is a transaction that
// runs the functions of the schema fenceguard, where the rule is. Beside it any number of other guards, and
// of clients that write under their own claims, work on the same fences.
//
// What happens to a call whose connection breaks: before its COMMIT was sent it is unavailable, and nothing
// was done; afterwards it is unknown. Nothing is repeated, but an advance that the server rolled back by
// itself for a serialization failure or a deadlock, a few times: there the refusal is known.
//
// Thread-safe.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "adapters/postgres/workers.hpp"
#include "guard/storage.hpp"

namespace fenceguard::postgres {

class DatabaseFences : public FenceStore {
 public:
  // Throws Unavailable if the server cannot be reached now. Later it may come and go.
  DatabaseFences(Address address, const StorageOptions& options);
  ~DatabaseFences() override;

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
  // Runs function(tx), unless nothing may be changed here.
  template <class T, class Function>
  void change(Call call, Function function, Done<T> done) {
    if (is_inspecting_) return changes_.refuse<T>(refusal(), std::move(done));
    changes_.ask<T>(std::move(call), std::move(function), std::move(done));
  }
  [[nodiscard]] Fault refusal() const;
  void refresh(Done<StoreStatus> done);
  void keep_status();

  const Address address_;
  const std::int64_t jump_max_;
  const bool is_inspecting_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable wake_;
  StoreStatus status_;
  BootClock::time_point seen_at_;
  bool is_asked_ = false;
  bool is_stopping_ = false;

  Workers changes_;
  Workers looks_;
  std::thread keeper_;
};

}  // namespace fenceguard::postgres
