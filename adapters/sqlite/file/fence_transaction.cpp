#include "adapters/sqlite/file/fence_transaction.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "adapters/sqlite/file/schema.hpp"
#include "guard/error.hpp"
#include "guard/support/clock.hpp"

namespace fenceguard::sqlite {
namespace {

constexpr std::size_t fill_page = 10'000;
constexpr std::chrono::seconds checkpoint_wait{10};  // for a checkpoint of another connection
constexpr std::chrono::milliseconds checkpoint_look{5};

}  // namespace

FenceTransaction::FenceTransaction(const std::string& path, FenceCache& cache)
    : database_{path, Database::Mode::read_write},
      fences_{database_.handle()},
      objects_{database_.handle()},
      leases_{database_.handle()},
      cache_{cache} {
  open_log(path);
  cache_.clear();
  look_again();
}

// What is in force goes to the disk before any of it is copied into the file. On a full disk only a log that
// was copied has room for the transaction that takes the place of what is not in force, so that comes last.
void FenceTransaction::open_log(const std::string& path) {
  keep_log(database_.handle());
  database_.copy_log_at_close(true);
  const auto give_up_at = BootClock::now() + std::chrono::nanoseconds{checkpoint_wait};
  int code = SQLITE_OK;
  while (((code = database_.checkpoint()) & 0xFF) == SQLITE_BUSY && BootClock::now() < give_up_at)
    std::this_thread::sleep_for(checkpoint_look);
  if (code != SQLITE_OK) throw_error(database_.handle(), code, "checkpointing " + path);
  (void)database_.truncate_log();
  commit_no_change(database_.handle());
}

void FenceTransaction::look_again() {
  if (namespace_) return;
  namespace_ = fences_.load_namespace();
  durable_namespace_ = namespace_;
  if (namespace_) fill_cache();
}

void FenceTransaction::fill_cache() {
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

void FenceTransaction::begin() {
  bytes_held_ = 0;
  database_.begin();
  look_again();
}

CommitEnding FenceTransaction::commit() {
  write_changed();
  const auto ending = database_.commit();
  if (ending != CommitEnding::committed) return ending;
  try {
    cache_seen();
    durable_namespace_ = namespace_;
  } catch (const std::exception&) {
    return CommitEnding::unknown;  // no memory: a cache that is behind the file must not be asked any more
  }
  return ending;
}

void FenceTransaction::rollback() noexcept {
  sqlite::rollback(database_.handle());
  seen_.clear();
  namespace_ = durable_namespace_;
}

// In the order of the table, so that neighbours go to one page while it is at hand.
void FenceTransaction::write_changed() {
  std::vector<const AllSeen::value_type*> changed;
  changed.reserve(seen_.size());
  for (const auto& entry : seen_) {
    if (entry.second.is_changed) changed.push_back(&entry);
  }
  std::sort(changed.begin(), changed.end(),
            [](const auto* a, const auto* b) { return a->first.name() < b->first.name(); });
  for (const auto* entry : changed) {
    const auto& [resource, seen] = *entry;
    if (seen.view.record) {
      fences_.store(resource.name(), *seen.view.record);
    } else {
      fences_.remove(resource.name());
    }
  }
  if (namespace_ && namespace_ != durable_namespace_) fences_.store_namespace(*namespace_);
}

void FenceTransaction::cache_seen() {
  for (const auto& [resource, seen] : seen_) {
    if (seen.is_cached) continue;
    if (!seen.view.record) {
      if (seen.is_changed) cache_.erase(resource);
    } else if (cache_.put(resource, *seen.view.record)) {
      cache_holds_all_ = false;
    }
  }
  seen_.clear();
}

void FenceTransaction::initialise(std::int64_t floor) {
  namespace_ = fences_.fresh_namespace(floor);
}

void FenceTransaction::raise_floor(std::int64_t floor) {
  namespace_->floor = std::max(namespace_->floor, floor);
  namespace_->highest = std::max(namespace_->highest, namespace_->floor);
}

void FenceTransaction::find_highest() {
  write_changed();
  namespace_->highest = std::max(fences_.highest(), namespace_->floor);
}

FenceTransaction::Seen FenceTransaction::look_up(const Resource& resource) {
  if (auto cached = cache_.find(resource)) return {.view = {std::move(cached)}, .is_cached = true};
  if (cache_holds_all_) return {};
  return {.view = {fences_.load(resource.name())}};
}

FenceTransaction::Seen& FenceTransaction::see(const Resource& resource) {
  const auto present = seen_.find(resource);
  if (present != seen_.end()) return present->second;
  return seen_.emplace(resource, look_up(resource)).first->second;
}

const FenceView& FenceTransaction::view(const Resource& resource) {
  FenceView& view = see(resource).view;
  view.floor = row().floor;
  return view;
}

void FenceTransaction::record(const Resource& resource, Fence fence) {
  Seen& seen = see(resource);
  if (!seen.view.record) ++namespace_->resources;
  namespace_->highest = std::max(namespace_->highest, fence.token.value());
  seen.view.record = std::move(fence);
  seen.is_changed = true;
  seen.is_cached = false;
}

void FenceTransaction::remove(const Resource& resource) {
  Seen& seen = see(resource);
  if (seen.view.record) --namespace_->resources;
  seen.view.record.reset();
  seen.is_changed = true;
  seen.is_cached = false;
}

}  // namespace fenceguard::sqlite
