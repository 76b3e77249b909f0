#include <atomic>

#include "adapters/zookeeper/fences/storage.hpp"
#include "tests/conformance/fence_store/fence_store_suite.hpp"
#include "tests/zookeeper/ensemble.hpp"

namespace fenceguard::test {
namespace {

class RootSpace : public FenceSpace {
 public:
  RootSpace() {
    static const Ensemble ensemble{1};
    static std::atomic<int> number{0};
    url_ = ensemble.url("/fences-" + std::to_string(++number));
  }
  std::unique_ptr<Storage> open(const StorageOptions& options) override {
    return zookeeper::open_storage(Url::parse(url_), options);
  }

 private:
  std::string url_;
};

INSTANTIATE_TEST_SUITE_P(ZooKeeper, FenceStoreSuite,
                         testing::Values(FenceKind{"root", [] { return std::make_unique<RootSpace>(); }}),
                         fence_kind_name);

}  // namespace
}  // namespace fenceguard::test
