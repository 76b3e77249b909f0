#include "adapters/etcd/fences/storage.hpp"

#include <algorithm>
#include <mutex>

#include "adapters/etcd/client.hpp"
#include "adapters/etcd/fences/address_beside_source.hpp"
#include "adapters/etcd/fences/fence_admin.hpp"
#include "adapters/etcd/guard.hpp"
#include "adapters/etcd/token_source.hpp"
#include "guard/store/blocking_fence_store.hpp"

namespace fenceguard::etcd {
namespace {

constexpr std::int64_t few_fences = 256;

// What the drivers of one store share. Thread-safe.
struct Shared {
  Shared(const Address& address, const StorageOptions& options)
      : client{address}, guard{client, options.jump_max, options.cache_entries}, jump_max{options.jump_max} {}

  Client client;
  Guard guard;
  const std::int64_t jump_max;

  // The highest token: that of a few fences or the mark when the store was opened, of all that was changed
  // here since, and the mark as it rises, which others' fences are at most mark_slack above.
  std::mutex mutex;  // guards the following
  std::int64_t highest = 0;
  bool is_highest_known = false;
};

class EtcdDriver : public FenceDriver {
 public:
  explicit EtcdDriver(std::shared_ptr<Shared> shared)
      : shared_{std::move(shared)}, fences_{shared_->client} {}

  void connect() override {
    const FenceKeys keys{shared_->client.address().prefix};
    (void)shared_->client.range(get(keys.floor()));
  }
  StoreStatus status() override;
  Ruling advance(const Claim& claim) override {
    auto ruling = shared_->guard.advance(claim);
    (void)see(ruling.highest);
    return ruling;
  }
  FenceView show(const Resource& resource) override { return fences_.look(resource); }
  FencePage list(const FenceListing& listing) override { return fences_.list(listing); }
  FenceView revoke(const Resource& resource, const std::optional<Claim>& lease) override {
    auto view = fences_.revoke({resource, lease, shared_->jump_max});
    (void)see(view.highest());
    return view;
  }
  FenceView rebase(const FenceStore::Rebase& rebase) override {
    auto view = fences_.rebase(rebase);
    (void)see(view.highest());
    return view;
  }
  std::int64_t init(std::int64_t floor) override { return fences_.init(floor); }
  Compaction compact(Token lowest_live) override { return fences_.compact(lowest_live); }

 private:
  // The highest token seen, this one included.
  std::int64_t see(std::int64_t token) {
    const std::scoped_lock lock{shared_->mutex};
    return shared_->highest = std::max(shared_->highest, token);
  }
  [[nodiscard]] bool is_highest_known() {
    const std::scoped_lock lock{shared_->mutex};
    return shared_->is_highest_known;
  }

  const std::shared_ptr<Shared> shared_;
  FenceAdmin fences_;
};

StoreStatus EtcdDriver::status() {
  auto status = fences_.status();
  if (status.state != StoreState::ready) return status;
  // The mark tells the highest token; where there are few fences they are looked at, once.
  if (!is_highest_known() && status.resources <= few_fences) status.highest = fences_.highest();
  status.highest = std::max(see(status.highest), status.floor);
  const std::scoped_lock lock{shared_->mutex};
  shared_->is_highest_known = true;
  return status;
}

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  const auto shared = std::make_shared<Shared>(address_beside_source(url), options);
  const auto make_driver = [&] { return std::make_unique<EtcdDriver>(shared); };
  return open_server_storage({.fences = {shared->client.address().shown, options.mode, make_driver},
                              .open_source = [&] { return open_source(url); }});
}

}  // namespace fenceguard::etcd
