#include "adapters/redis/fences/storage.hpp"

#include <fmt/format.h>

#include <mutex>

#include "adapters/redis/fences/address_beside_source.hpp"
#include "adapters/redis/fences/fence_admin.hpp"
#include "adapters/redis/token_source.hpp"
#include "adapters/redis/wire/pool.hpp"
#include "guard/store/blocking_fence_store.hpp"

namespace fenceguard::redis {
namespace {

class RedisDriver : public FenceDriver {
 public:
  // pool: that of all drivers of the store, so that calls one after another go by one connection.
  // looking: that as well, so that the look that began last says what is so.
  RedisDriver(std::int64_t jump_max, std::shared_ptr<Pool> pool, std::shared_ptr<std::mutex> looking,
              std::shared_ptr<std::atomic<bool>> may_evict)
      : jump_max_{jump_max},
        pool_{std::move(pool)},
        looking_{std::move(looking)},
        may_evict_{std::move(may_evict)} {}

  void connect() override {
    try {
      pool_->connect();
      const auto objection = objection_to_eviction();
      if (may_evict_ && *may_evict_) throw Unavailable(objection);
    } catch (const PasswordRequired&) {
      // Clients of a data side may bring theirs.
    }
  }
  StoreStatus status() override {
    try {
      const auto objection = objection_to_eviction();
      auto status = call(redis::status);
      if (objection.empty()) return status;
      status.state = StoreState::failed;
      status.reason = objection;
      return status;
    } catch (const PasswordRequired& error) {
      StoreStatus status;
      status.reason = fmt::format(
          "{}; clients log in themselves, and the control side needs a user and password in the URL",
          error.what());
      return status;
    }
  }
  Ruling advance(const Claim& claim) override { return call(redis::advance, claim, jump_max_); }
  FenceView show(const Resource& resource) override { return call(look, resource); }
  FencePage list(const FenceListing& listing) override { return call(redis::list, listing); }
  FenceView revoke(const Resource& resource, const std::optional<Claim>& lease) override {
    return call(redis::revoke, resource, {lease, jump_max_});
  }
  FenceView rebase(const FenceStore::Rebase& rebase) override { return call(redis::rebase, rebase); }
  std::int64_t init(std::int64_t floor) override { return call(redis::init, floor); }
  Compaction compact(Token lowest_live) override { return call(redis::compact, lowest_live); }

 private:
  template <class Result, class... Arguments>
  Result call(Result (*function)(Client&, Arguments...), std::type_identity_t<Arguments>... arguments) {
    return pool_->with([&](Client& client) { return function(client, arguments...); });
  }

  // Empty: it is fine, or could not be seen, or nobody asks.
  std::string objection_to_eviction() {
    if (!may_evict_) return {};
    const std::scoped_lock lock{*looking_};
    const auto policy = call(evicting_policy);
    if (policy) *may_evict_ = true;
    const auto is_cluster = pool_->with([](Client& client) { return client.is_cluster(); });
    const bool may_have = is_cluster ? may_evict_->load() : call(may_have_evicted, policy.has_value());
    if (policy)
      return fmt::format(
          "maxmemory-policy {} of Redis may evict fences, and then stale writes land: set noeviction, and "
          "run 'fenceguard fence init' if it has evicted; or start with --unsafe-eviction",
          *policy);
    *may_evict_ = may_have;
    if (!may_have) return {};
    return fmt::format(
        "the maxmemory-policy of Redis could evict fences for a while, and it is not certain that it has "
        "not: {}; or start with --unsafe-eviction",
        is_cluster ? "end every holder of a lease, and start this guard anew"
                   : "run 'fenceguard fence init', which refuses every token granted so far");
  }

  const std::int64_t jump_max_;
  const std::shared_ptr<Pool> pool_;
  const std::shared_ptr<std::mutex> looking_;
  const std::shared_ptr<std::atomic<bool>> may_evict_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options,
                                      std::shared_ptr<std::atomic<bool>> may_evict) {
  const auto address = address_beside_source(url);
  const auto pool = std::make_shared<Pool>(address);
  const auto looking = std::make_shared<std::mutex>();
  const auto make_driver = [&] {
    return std::make_unique<RedisDriver>(options.jump_max, pool, looking, may_evict);
  };
  const auto open_own_source = [&]() -> std::unique_ptr<TokenSource> {
    try {
      return open_source(url);
    } catch (const PasswordRequired&) {
      return nullptr;
    }
  };
  return open_server_storage(
      {.fences = {address.shown, options.mode, make_driver,
                  [](const Resource& resource) { return objection_to_resource(resource.name()); }},
       .open_source = open_own_source});
}

}  // namespace fenceguard::redis
