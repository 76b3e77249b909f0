#include "adapters/zookeeper/fences/storage.hpp"

#include <algorithm>

#include "adapters/zookeeper/fences/fence_admin.hpp"
#include "adapters/zookeeper/guard.hpp"
#include "adapters/zookeeper/token_source.hpp"
#include "guard/store/blocking_fence_store.hpp"

namespace fenceguard::zookeeper {
namespace {

constexpr std::int64_t few_fences = 256;

// What the drivers of one store share. Thread-safe.
struct Shared {
  Shared(Address address, const StorageOptions& options)
      : client{std::move(address)},
        guard{client, {.jump_max = options.jump_max, .cache_entries = options.cache_entries}},
        jump_max{options.jump_max} {}

  Client client;
  Guard guard;
  const std::int64_t jump_max;
};

class ZooKeeperDriver : public FenceDriver {
 public:
  explicit ZooKeeperDriver(std::shared_ptr<Shared> shared)
      : shared_{std::move(shared)}, client_{shared_->client} {}

  // Sees the highest token too: the mark tells it about; where there are few fences they are looked at.
  void connect() override;
  StoreStatus status() override;
  Ruling advance(const Claim& claim) override { return shared_->guard.advance(claim); }
  FenceView show(const Resource& resource) override { return look(client_, resource); }
  FencePage list(const FenceListing& listing) override { return zookeeper::list(client_, listing); }
  FenceView revoke(const Resource& resource, const std::optional<Claim>& lease) override {
    return zookeeper::revoke(client_, resource, {lease, shared_->guard.highest_seen(), shared_->jump_max});
  }
  FenceView rebase(const FenceStore::Rebase& rebase) override { return zookeeper::rebase(client_, rebase); }
  std::int64_t init(std::int64_t floor) override { return zookeeper::init(client_, floor); }
  Compaction compact(Token lowest_live) override { return zookeeper::compact(client_, lowest_live); }

 private:
  const std::shared_ptr<Shared> shared_;
  Client& client_;
};

void ZooKeeperDriver::connect() {
  const auto connection = client_.connection();
  const auto status = zookeeper::status(client_);
  if (status.state == StoreState::ready && status.resources <= few_fences)
    shared_->guard.saw(read_highest(connection, client_.paths()));
}

StoreStatus ZooKeeperDriver::status() {
  auto status = zookeeper::status(client_);
  shared_->guard.saw(std::max(status.floor, status.highest));
  status.highest = shared_->guard.highest_seen();
  return status;
}

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  const auto shared = std::make_shared<Shared>(address_beside_source(url), options);
  const auto make_driver = [&] { return std::make_unique<ZooKeeperDriver>(shared); };
  return open_server_storage({.fences = {shared->client.address().shown, options.mode, make_driver},
                              .open_source = [&] { return open_source(url); }});
}

}  // namespace fenceguard::zookeeper
