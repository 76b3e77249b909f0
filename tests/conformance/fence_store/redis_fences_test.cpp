#include <atomic>

#include "adapters/redis/fences/storage.hpp"
#include "tests/conformance/fence_store/fence_store_suite.hpp"
#include "tests/redis/server.hpp"

namespace fenceguard::test {
namespace {

class PrefixSpace : public FenceSpace {
 public:
  PrefixSpace() {
    static const RedisServer server;
    static std::atomic<int> number{0};
    url_ = server.url("?prefix=fences-" + std::to_string(++number) + ":");
  }
  std::unique_ptr<Storage> open(const StorageOptions& options) override {
    return redis::open_storage(Url::parse(url_), options);
  }

 private:
  std::string url_;
};

INSTANTIATE_TEST_SUITE_P(Redis, FenceStoreSuite,
                         testing::Values(FenceKind{"prefix", [] { return std::make_unique<PrefixSpace>(); }}),
                         fence_kind_name);

}  // namespace
}  // namespace fenceguard::test
