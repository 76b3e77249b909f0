// The fences of a lane, as those of every storage.

#include "adapters/sqlite/storage.hpp"
#include "server/proxy/storage.hpp"
#include "tests/conformance/fence_store/fence_store_suite.hpp"
#include "tests/conformance/temp_dir.hpp"

namespace fenceguard::test {
namespace {

class LaneSpace : public FenceSpace {
 public:
  std::unique_ptr<Storage> open(const StorageOptions& options) override {
    auto with_state = options;
    with_state.lane.is_settled = true;
    with_state.lane.state = sqlite::open_storage(folder_.file("state.db"), options);
    return proxy::open_storage(Url::parse("http://127.0.0.1:9"), with_state);
  }
  [[nodiscard]] bool can_be_inspected() const override { return false; }
  [[nodiscard]] bool can_be_rebased() const override { return false; }
  [[nodiscard]] bool tells_changes() const override { return false; }
  [[nodiscard]] bool tells_overtaken() const override { return false; }

 private:
  TempDir folder_;
};

INSTANTIATE_TEST_SUITE_P(Lanes, FenceStoreSuite,
                         testing::Values(FenceKind{"state", [] { return std::make_unique<LaneSpace>(); }}),
                         fence_kind_name);

}  // namespace
}  // namespace fenceguard::test
