#include "adapters/mariadb/fences/storage.hpp"
#include "tests/conformance/fence_store/fence_store_suite.hpp"
#include "tests/mariadb/database.hpp"

namespace fenceguard::test {
namespace {

class ServerSpace : public FenceSpace {
 public:
  std::unique_ptr<Storage> open(const StorageOptions& options) override {
    return mariadb::open_storage(database_.url(), options);
  }

 private:
  mariadb::test::Database database_;
};

INSTANTIATE_TEST_SUITE_P(Mariadb, FenceStoreSuite,
                         testing::Values(FenceKind{"server", [] { return std::make_unique<ServerSpace>(); }}),
                         fence_kind_name);

}  // namespace
}  // namespace fenceguard::test
