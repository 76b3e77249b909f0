#include "adapters/etcd/storage.hpp"

#include "adapters/etcd/address_beside_source.hpp"
#include "adapters/etcd/fence_store.hpp"
#include "adapters/etcd/token_source.hpp"

namespace fenceguard::etcd {
namespace {

class EtcdStorage : public Storage {
 public:
  EtcdStorage(const Url& url, const StorageOptions& options) : fences_{address_beside_source(url), options} {
    if (options.mode == StorageOptions::Mode::guard) source_ = open_source(url);
  }

  FenceStore& fences() override { return fences_; }
  TokenSource* own_source() override { return source_.get(); }

 private:
  EtcdFences fences_;
  std::unique_ptr<TokenSource> source_;
};

}  // namespace

std::unique_ptr<Storage> open_storage(const Url& url, const StorageOptions& options) {
  return std::make_unique<EtcdStorage>(url, options);
}

}  // namespace fenceguard::etcd
