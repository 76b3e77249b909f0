#include "tests/conformance/fence_store/fence_store_suite.hpp"
#include "tests/postgres/storage/database.hpp"

namespace fenceguard::test {
namespace {

class DatabaseSpace : public FenceSpace {
 public:
  std::unique_ptr<Storage> open(const StorageOptions& options) override { return database_.open(options); }

 private:
  postgres::test::Database database_;
};

INSTANTIATE_TEST_SUITE_P(Postgres, FenceStoreSuite,
                         testing::Values(FenceKind{"database",
                                                   [] { return std::make_unique<DatabaseSpace>(); }}),
                         fence_kind_name);

}  // namespace
}  // namespace fenceguard::test
