#include "adapters/zookeeper/storage.hpp"

#include "adapters/zookeeper/fence_store.hpp"
#include "adapters/zookeeper/token_source.hpp"

namespace fenceguard::zookeeper {
namespace {

class ZooKeeperStorage : public Storage {
 public:
  ZooKeeperStorage(const Url& url, const StorageOptions& options)
      : fences_{address_beside_source(url), options} {
    if (options.mode == StorageOptions::Mode::guard) source_ = open_source(url);
  }

  FenceStore& fences() override { return fences_; }
  TokenSource* own_source() override { return source_.get(); }

 private:
  ZooKeeperFences fences_;
  std::unique_ptr<TokenSource> source_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  return std::make_unique<ZooKeeperStorage>(url, options);
}

}  // namespace fenceguard::zookeeper
