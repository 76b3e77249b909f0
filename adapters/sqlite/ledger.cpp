#include "adapters/sqlite/ledger.hpp"

#include <algorithm>

#include "guard/error.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr std::size_t fill_page = 10'000;

}  // namespace

Ledger::Ledger(const std::string& path, FenceCache& cache, Opening opening)
    : database_{path, Database::Mode::read_write},
      fences_{database_.handle()},
      objects_{database_.handle()},
      leases_{database_.handle()},
      cache_{cache} {
  const int code = database_.checkpoint(true);
  // Another process that uses the lease table may be in the way.
  const bool may_wait = opening == Opening::first && (code & 0xFF) == SQLITE_BUSY;
  if (code != SQLITE_OK && !may_wait) throw_error(database_.handle(), code, "checkpointing " + path);
  cache_.clear();
  look_again();
}

void Ledger::look_again() {
  if (namespace_) return;
  namespace_ = fences_.load_namespace();
  durable_namespace_ = namespace_;
  if (namespace_) fill_cache();
}

void Ledger::fill_cache() {
  if (static_cast<std::size_t>(namespace_->resources) > cache_.capacity()) return;
  FenceListing listing{"", "", fill_page};
  bool evicted = false;
  for (;;) {
    const auto page = fences_.list(listing);
    for (const auto& [resource, fence] : page.entries) evicted |= cache_.put(resource, fence);
    if (!page.has_more) break;
    listing.after = page.entries.back().resource.name();
  }
  cache_holds_all_ = !evicted && cache_.capacity() > 0;
}

void Ledger::begin() {
  database_.begin();
}

CommitEnding Ledger::commit() {
  write_pending();
  const auto ending = database_.commit();
  if (ending == CommitEnding::committed) {
    cache_pending();
    durable_namespace_ = namespace_;
  }
  return ending;
}

void Ledger::rollback() noexcept {
  sqlite::rollback(database_.handle());
  pending_.clear();
  namespace_ = durable_namespace_;
}

void Ledger::write_pending() {
  for (const auto& [name, fence] : pending_) {
    if (fence) {
      fences_.store(name, *fence);
    } else {
      fences_.remove(name);
    }
  }
  if (namespace_ && namespace_ != durable_namespace_) fences_.store_namespace(*namespace_);
}

void Ledger::cache_pending() {
  for (const auto& [name, fence] : pending_) {
    const Resource resource{name};
    if (!fence) {
      cache_.erase(resource);
    } else if (cache_.put(resource, *fence)) {
      cache_holds_all_ = false;
    }
  }
  pending_.clear();
}

void Ledger::initialise(std::int64_t floor) {
  namespace_ = fresh_namespace(floor);
}

void Ledger::raise_floor(std::int64_t floor) {
  namespace_->floor = std::max(namespace_->floor, floor);
  namespace_->highest = std::max(namespace_->highest, namespace_->floor);
}

FenceView Ledger::view(const Resource& resource) {
  const auto pending = pending_.find(resource.name());
  if (pending != pending_.end()) return {pending->second, row().floor};
  if (auto cached = cache_.find(resource)) return {std::move(cached), row().floor};
  if (cache_holds_all_) return {std::nullopt, row().floor};
  return {fences_.load(resource.name()), row().floor};
}

void Ledger::record(const Resource& resource, const Fence& fence) {
  if (!view(resource).record) ++namespace_->resources;
  namespace_->highest = std::max(namespace_->highest, fence.token.value());
  pending_[resource.name()] = fence;
}

void Ledger::remove(const Resource& resource) {
  if (view(resource).record) --namespace_->resources;
  pending_[resource.name()] = std::nullopt;
}

}  // namespace fenceguard::sqlite
