#include "adapters/mariadb/token_source.hpp"
#include "tests/conformance/source/token_source_suite.hpp"
#include "tests/mariadb/database.hpp"

namespace fenceguard::test {
namespace {

// A database of its own, in which each handle opens connections of its own.
class OwnDatabase : public SourceSpace {
 public:
  std::unique_ptr<TokenSource> open() override { return mariadb::open_source(database_.url()); }

 private:
  mariadb::test::Database database_;
};

INSTANTIATE_TEST_SUITE_P(Mariadb, TokenSourceSuite,
                         testing::Values(SourceKind{"ttl", [] { return std::make_unique<OwnDatabase>(); }}),
                         source_kind_name);

}  // namespace
}  // namespace fenceguard::test
