#include "adapters/redis/storage.hpp"

#include "adapters/redis/address_beside_source.hpp"
#include "adapters/redis/fence_store.hpp"
#include "adapters/redis/token_source.hpp"

namespace fenceguard::redis {
namespace {

class RedisStorage : public Storage {
 public:
  RedisStorage(const Url& url, const StorageOptions& options) : fences_{address_beside_source(url), options} {
    if (options.mode == StorageOptions::Mode::guard) source_ = open_source(url);
  }

  FenceStore& fences() override { return fences_; }
  TokenSource* own_source() override { return source_.get(); }

 private:
  RedisFences fences_;
  std::unique_ptr<TokenSource> source_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  return std::make_unique<RedisStorage>(url, options);
}

}  // namespace fenceguard::redis
