#pragma once

// FenceCache: what a guard remembers of the fences of a namespace, so as to guess right what a transaction
// has to compare. It decides nothing: what is outdated here costs a round trip, and never a verdict.
//
// Thread-safe.

#include <cstdint>
#include <mutex>
#include <optional>

#include "guard/store/fence_cache.hpp"

namespace fenceguard::etcd {

class FenceCache {
 public:
  // At most entries fences.
  explicit FenceCache(std::size_t entries) : fences_{entries} {}

  // What the fence of resource probably is; nothing while the floor is not known. A fence that is not
  // remembered is taken for none.
  [[nodiscard]] std::optional<FenceView> guess(const Resource& resource) const;

  // What was in the store at some moment.
  void learn(const Resource& resource, const std::optional<Fence>& record);
  void learn_floor(std::int64_t floor);
  void forget_floor();

  // The mark of the namespace, see fence_mark.hpp; nothing while it is not known.
  [[nodiscard]] std::optional<std::int64_t> mark() const;
  void learn_mark(std::optional<std::int64_t> mark);

  // The highest token that was ever seen here; learn_highest() never lowers it.
  [[nodiscard]] std::int64_t highest() const;
  void learn_highest(std::int64_t token);

 private:
  fenceguard::FenceCache fences_;
  mutable std::mutex mutex_;  // guards the following
  std::optional<std::int64_t> floor_;
  std::optional<std::int64_t> mark_;
  std::int64_t highest_ = 0;
};

}  // namespace fenceguard::etcd
