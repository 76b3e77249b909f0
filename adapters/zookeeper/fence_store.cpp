#include "adapters/zookeeper/fence_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "adapters/zookeeper/fence_calls.hpp"

namespace fenceguard::zookeeper {
namespace {

constexpr unsigned threads = 8;
constexpr std::chrono::seconds refresh_every{1};
constexpr std::int64_t few_fences = 256;

}  // namespace

ZooKeeperFences::ZooKeeperFences(Address address, const StorageOptions& options)
    : jump_max_{options.jump_max},
      is_inspecting_{options.mode == StorageOptions::Mode::inspect},
      client_{std::move(address)},
      guard_{client_, {.jump_max = options.jump_max, .cache_entries = options.cache_entries}},
      workers_{threads, "ZooKeeper"} {
  const auto connection = client_.connection();
  status_ = look_around();
  if (status_.state == StoreState::ready) {
    // The mark tells it about; where there are few fences they are looked at.
    if (status_.resources <= few_fences) guard_.saw(read_highest(connection, client_.paths()));
    status_.highest = guard_.highest_seen();
  }
  keeper_ = std::thread{[this] { keep_status(); }};
}

ZooKeeperFences::~ZooKeeperFences() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_all();
  keeper_.join();
}

StoreStatus ZooKeeperFences::status() const {
  const std::scoped_lock lock{mutex_};
  return status_;
}

Fault ZooKeeperFences::refusal() const {
  return {FaultKind::unavailable, fmt::format("{} is only looked at here", client_.address().shown)};
}

StoreStatus ZooKeeperFences::look_around() {
  StoreStatus status;
  try {
    status = zookeeper::status(client_);
    guard_.saw(std::max(status.floor, status.highest));
  } catch (const std::exception& error) {
    status.state = StoreState::failed;
    status.reason = error.what();
  }
  status.highest = guard_.highest_seen();
  return status;
}

// Of two looks that go side by side the one that began later stays.
void ZooKeeperFences::refresh_status() {
  const auto number = [this] {
    const std::scoped_lock lock{mutex_};
    return ++looks_begun_;
  }();
  auto seen = look_around();
  const std::scoped_lock lock{mutex_};
  if (number < look_shown_) return;
  look_shown_ = number;
  status_ = std::move(seen);
}

void ZooKeeperFences::keep_status() {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, refresh_every, [this] { return is_stopping_; })) {
    lock.unlock();
    refresh_status();
    lock.lock();
  }
}

void ZooKeeperFences::advance(Claim claim, Done<Ruling> done) {
  change<Ruling>([this, claim = std::move(claim)] { return guard_.advance(claim); }, std::move(done));
}

void ZooKeeperFences::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) {
  change<FenceView>(
      [this, resource = std::move(resource), lease = std::move(lease)] {
        return zookeeper::revoke(client_, resource, {lease, guard_.highest_seen(), jump_max_});
      },
      std::move(done));
}

void ZooKeeperFences::compact(Token lowest_live, Done<Compaction> done) {
  change<Compaction>([this, lowest_live] { return zookeeper::compact(client_, lowest_live); },
                     std::move(done));
}

void ZooKeeperFences::show(Resource resource, Done<FenceView> done) {
  workers_.ask<FenceView>([this, resource = std::move(resource)] { return look(client_, resource); },
                          std::move(done));
}

void ZooKeeperFences::list(FenceListing listing, Done<FencePage> done) {
  workers_.ask<FencePage>([this, listing = std::move(listing)] { return zookeeper::list(client_, listing); },
                          std::move(done));
}

void ZooKeeperFences::init(std::int64_t floor, Done<std::int64_t> done) {
  change<std::int64_t>(
      [this, floor] {
        const auto result = zookeeper::init(client_, floor);
        refresh_status();
        return result;
      },
      std::move(done));
}

void ZooKeeperFences::rebase(Rebase rebase, Done<FenceView> done) {
  change<FenceView>([this, rebase = std::move(rebase)] { return zookeeper::rebase(client_, rebase); },
                    std::move(done));
}

}  // namespace fenceguard::zookeeper
