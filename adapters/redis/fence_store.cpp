#include "adapters/redis/fence_store.hpp"

#include <fmt/format.h>

#include "adapters/redis/fence_calls.hpp"

namespace fenceguard::redis {
namespace {

constexpr unsigned threads = 4;
constexpr std::chrono::seconds refresh_every{1};

}  // namespace

RedisFences::RedisFences(const Address& address, const StorageOptions& options)
    : shown_{address.shown},
      jump_max_{options.jump_max},
      is_inspecting_{options.mode == StorageOptions::Mode::inspect},
      pool_{address},
      workers_{threads, "Redis"} {
  status_ = look_around();
  keeper_ = std::thread{[this] { keep_status(); }};
}

RedisFences::~RedisFences() {
  {
    const std::scoped_lock lock{mutex_};
    is_stopping_ = true;
  }
  wake_.notify_all();
  keeper_.join();
}

StoreStatus RedisFences::status() const {
  const std::scoped_lock lock{mutex_};
  return status_;
}

Fault RedisFences::refusal() const {
  return {FaultKind::unavailable, fmt::format("{} is only looked at here", shown_)};
}

StoreStatus RedisFences::look_around() {
  try {
    return pool_.with([](Client& client) { return redis::status(client); });
  } catch (const std::exception& error) {
    StoreStatus status;
    status.state = StoreState::failed;
    status.reason = error.what();
    return status;
  }
}

void RedisFences::keep_status() {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, refresh_every, [this] { return is_stopping_; })) {
    lock.unlock();
    auto seen = look_around();
    lock.lock();
    status_ = std::move(seen);
  }
}

void RedisFences::advance(Claim claim, Done<Ruling> done) {
  change<Ruling>([claim = std::move(claim),
                  jump_max = jump_max_](Client& client) { return redis::advance(client, claim, jump_max); },
                 std::move(done));
}

void RedisFences::revoke(Resource resource, std::optional<Claim> lease, Done<FenceView> done) {
  change<FenceView>([resource = std::move(resource), revocation = Revocation{std::move(lease), jump_max_}](
                        Client& client) { return redis::revoke(client, resource, revocation); },
                    std::move(done));
}

void RedisFences::compact(Token lowest_live, Done<Compaction> done) {
  change<Compaction>([lowest_live](Client& client) { return redis::compact(client, lowest_live); },
                     std::move(done));
}

void RedisFences::show(Resource resource, Done<FenceView> done) {
  ask<FenceView>([resource = std::move(resource)](Client& client) { return look(client, resource); },
                 std::move(done));
}

void RedisFences::list(FenceListing listing, Done<FencePage> done) {
  ask<FencePage>([listing = std::move(listing)](Client& client) { return redis::list(client, listing); },
                 std::move(done));
}

void RedisFences::init(std::int64_t floor, Done<std::int64_t> done) {
  change<std::int64_t>(
      [this, floor](Client& client) {
        const auto result = redis::init(client, floor);
        auto seen = look_around();
        const std::scoped_lock lock{mutex_};
        status_ = std::move(seen);
        return result;
      },
      std::move(done));
}

void RedisFences::rebase(Rebase rebase, Done<FenceView> done) {
  change<FenceView>([rebase = std::move(rebase)](Client& client) { return redis::rebase(client, rebase); },
                    std::move(done));
}

}  // namespace fenceguard::redis
