#include "adapters/etcd/fence_store.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fenceguard::etcd {
namespace {

constexpr unsigned threads = 8;
constexpr std::chrono::seconds refresh_every{1};
constexpr std::int64_t few_fences = 256;

}  // namespace

EtcdFences::EtcdFences(const Address& address, const StorageOptions& options)
    : client_{address},
      calls_{client_},
      guard_{client_, options.jump_max, options.cache_entries},
      jump_max_{options.jump_max},
      is_inspecting_{options.mode == StorageOptions::Mode::inspect},
      workers_{threads, "etcd"} {
  (void)client_.range(get(FenceKeys{address.prefix}.floor()));
  refresh();
  keeper_ = std::thread{[this] { keep_status(); }};
}

EtcdFences::~EtcdFences() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_all();
  keeper_.join();
}

StoreStatus EtcdFences::status() const {
  const std::scoped_lock lock{mutex_};
  auto status = status_;
  if (status.state == StoreState::ready) status.highest = std::max(highest_, status.floor);
  return status;
}

Fault EtcdFences::refusal() const {
  return {FaultKind::unavailable, fmt::format("{} is only looked at here", client_.address().shown)};
}

void EtcdFences::see(std::int64_t token) {
  const std::scoped_lock lock{mutex_};
  highest_ = std::max(highest_, token);
}

void EtcdFences::refresh() {
  StoreStatus seen;
  std::optional<std::int64_t> highest;
  bool is_highest_known = false;
  std::int64_t look = 0;
  {
    const std::scoped_lock lock{mutex_};
    is_highest_known = is_highest_known_;
    look = ++looks_;
  }
  try {
    seen = calls_.status();
    // The mark tells it about; where there are few fences they are looked at, once.
    const bool are_few = !is_highest_known && seen.resources <= few_fences;
    if (seen.state == StoreState::ready) highest = are_few ? calls_.highest() : seen.highest;
  } catch (const std::exception& error) {
    seen = {};
    seen.state = StoreState::failed;
    seen.reason = error.what();
  }
  const std::scoped_lock lock{mutex_};
  // One that was begun later may have ended before.
  if (look > last_look_) {
    status_ = std::move(seen);
    last_look_ = look;
  }
  if (!highest) return;
  highest_ = std::max(highest_, *highest);
  is_highest_known_ = true;
}

void EtcdFences::keep_status() {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, refresh_every, [this] { return is_stopping_; })) {
    lock.unlock();
    refresh();
    lock.lock();
  }
}

void EtcdFences::advance(Claim claim, Done<Ruling> done) {
  change<Ruling>(
      [this, claim = std::move(claim)] {
        auto ruling = guard_.advance(claim);
        see(ruling.highest);
        return ruling;
      },
      std::move(done));
}

void EtcdFences::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) {
  change<FenceView>(
      [this, revocation = FenceCalls::Revocation{std::move(resource), std::move(lease), jump_max_}] {
        auto view = calls_.revoke(revocation);
        see(view.highest());
        return view;
      },
      std::move(done));
}

void EtcdFences::compact(Token lowest_live, Done<Compaction> done) {
  change<Compaction>([this, lowest_live] { return calls_.compact(lowest_live); }, std::move(done));
}

void EtcdFences::show(Resource resource, Done<FenceView> done) {
  workers_.ask<FenceView>([this, resource = std::move(resource)] { return calls_.look(resource); },
                          std::move(done));
}

void EtcdFences::list(FenceListing listing, Done<FencePage> done) {
  workers_.ask<FencePage>([this, listing = std::move(listing)] { return calls_.list(listing); },
                          std::move(done));
}

void EtcdFences::init(std::int64_t floor, Done<std::int64_t> done) {
  change<std::int64_t>(
      [this, floor] {
        const auto result = calls_.init(floor);
        refresh();
        return result;
      },
      std::move(done));
}

void EtcdFences::rebase(Rebase rebase, Done<FenceView> done) {
  change<FenceView>(
      [this, rebase = std::move(rebase)] {
        auto view = calls_.rebase(rebase);
        see(view.highest());
        return view;
      },
      std::move(done));
}

}  // namespace fenceguard::etcd
