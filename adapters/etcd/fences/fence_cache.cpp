#include "adapters/etcd/fences/fence_cache.hpp"

#include <algorithm>

namespace fenceguard::etcd {

std::optional<FenceView> FenceCache::guess(const Resource& resource) const {
  std::optional<std::int64_t> floor;
  {
    const std::scoped_lock lock{mutex_};
    floor = floor_;
  }
  if (!floor) return std::nullopt;
  return FenceView{fences_.find(resource), *floor};
}

void FenceCache::learn(const Resource& resource, const std::optional<Fence>& record) {
  if (!record) return fences_.erase(resource);
  (void)fences_.put(resource, *record);
  learn_highest(record->token.value());
}

void FenceCache::learn_floor(std::int64_t floor) {
  const std::scoped_lock lock{mutex_};
  floor_ = floor;
  highest_ = std::max(highest_, floor);
}

void FenceCache::forget_floor() {
  const std::scoped_lock lock{mutex_};
  floor_.reset();
}

std::optional<std::int64_t> FenceCache::mark() const {
  const std::scoped_lock lock{mutex_};
  return mark_;
}

void FenceCache::learn_mark(std::optional<std::int64_t> mark) {
  const std::scoped_lock lock{mutex_};
  mark_ = mark;
  highest_ = std::max(highest_, mark.value_or(0));
}

std::int64_t FenceCache::highest() const {
  const std::scoped_lock lock{mutex_};
  return highest_;
}

void FenceCache::learn_highest(std::int64_t token) {
  const std::scoped_lock lock{mutex_};
  highest_ = std::max(highest_, token);
}

}  // namespace fenceguard::etcd
