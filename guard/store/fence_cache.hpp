#pragma once

// FenceCache: the hot fences of a store, bounded. What is in it is durable in the store: put() only what was
// committed. A fence that is missing here says nothing; ask the store.
//
// Split into shards, each a hash index over slots of 96 bytes that hold a resource's name and holder in place
// where they are short (up to 72 bytes together). When a shard is full, a slot that was not used since the
// hand last passed gives way (the CLOCK algorithm, F. J. Corbato 1968).
//
// Thread-safe. A call locks one shard: find() and ask() one of the locks of that shard, which threads have
// each for themselves while they are few, put(), erase() and clear() all of them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "guard/judge.hpp"

namespace fenceguard {

class FenceCache {
 public:
  // At most entries fences; 0 caches nothing.
  explicit FenceCache(std::size_t entries);
  ~FenceCache();
  FenceCache(const FenceCache&) = delete;
  FenceCache& operator=(const FenceCache&) = delete;

  [[nodiscard]] std::optional<Fence> find(const Resource& resource) const;

  // What judge_verdict() says of the claim against the cached fence, and the highest token of the resource;
  // nothing if the fence is not cached.
  struct Answer {
    Verdict verdict;
    std::int64_t highest;
  };
  [[nodiscard]] std::optional<Answer> ask(const Claim& claim, std::int64_t floor) const;

  // Adds or replaces. True if another fence had to give way.
  bool put(const Resource& resource, const Fence& fence);
  void erase(const Resource& resource);
  void clear();

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  class Shard;
  [[nodiscard]] Shard& shard_of(std::size_t hash) const noexcept;

  std::size_t capacity_;
  std::size_t shard_count_;
  std::unique_ptr<Shard[]> shards_;
};

}  // namespace fenceguard
