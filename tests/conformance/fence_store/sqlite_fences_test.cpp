#include "adapters/sqlite/storage.hpp"
#include "tests/conformance/fence_store/fence_store_suite.hpp"
#include "tests/conformance/temp_dir.hpp"

namespace fenceguard::test {
namespace {

class FileSpace : public FenceSpace {
 public:
  std::unique_ptr<Storage> open(const StorageOptions& options) override {
    return sqlite::open_storage(folder_.file("fences.db"), options);
  }

 private:
  TempDir folder_;
};

INSTANTIATE_TEST_SUITE_P(Sqlite, FenceStoreSuite,
                         testing::Values(FenceKind{"file", [] { return std::make_unique<FileSpace>(); }}),
                         fence_kind_name);

}  // namespace
}  // namespace fenceguard::test
