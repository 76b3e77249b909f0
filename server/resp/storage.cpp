#include "server/resp/storage.hpp"

#include "adapters/redis/fences/address_beside_source.hpp"
#include "adapters/redis/fences/storage.hpp"
#include "adapters/redis/lock/lock_key.hpp"
#include "guard/error.hpp"
#include "server/resp/resp_service.hpp"

namespace fenceguard::resp {
namespace {

class RespStorage : public Storage, public ServedStorage {
 public:
  RespStorage(const Url& url, const StorageOptions& options)
      : may_evict_{options.refuses_evicting ? std::make_shared<std::atomic<bool>>(false) : nullptr},
        storage_{redis::open_storage(url, options, may_evict_)},
        address_{redis::address_beside_source(url)},
        lock_pattern_{url.parameter("lock_key").value_or("")},
        jump_max_{options.jump_max},
        settle_{options.lane.settle} {
    // It may not have come to open a source, which looks at the pattern.
    (void)redis::LockKey{redis::Keys{address_.prefix}, lock_pattern_, false};
  }

  FenceStore& fences() override { return storage_->fences(); }
  TokenSource* own_source() override { return storage_->own_source(); }
  std::shared_ptr<DataService> data_service(const ServiceContext& context) override {
    if (lock_pattern_ == "%s")
      throw InvalidInput(
          "with ?lock_key=%s every key is the lock of a resource, so clients could write none; write "
          "PREFIX%sSUFFIX, or serve with --listen none");
    RespOptions options;
    options.address = address_;
    auto& relay = options.relay;
    relay.keys = redis::Keys{address_.prefix, redis::LockPattern::parse(lock_pattern_)};
    relay.commands = std::make_shared<redis::CommandTable>();
    relay.permissions = context.permissions;
    relay.jump_max = jump_max_;
    relay.may_evict = may_evict_;
    relay.keys_required = context.keys;
    relay.identity = {address_.user, address_.password};
    relay.database = address_.database;
    relay.lends_identity = !address_.user.empty() || !address_.password.empty();
    relay.data_password = context.password;
    options.requests.bytes_max = context.limits.body_bytes_max;
    options.upstreams.settle = settle_;
    return std::make_shared<RespService>(context, std::move(options));
  }

 private:
  const std::shared_ptr<std::atomic<bool>> may_evict_;  // null: that is not looked at
  const std::unique_ptr<Storage> storage_;
  const redis::Address address_;
  const std::string lock_pattern_;
  const std::int64_t jump_max_;
  const std::chrono::milliseconds settle_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  return std::make_unique<RespStorage>(url, options);
}

}  // namespace fenceguard::resp
