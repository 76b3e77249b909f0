#include "adapters/mariadb/token_source.hpp"
#include "tests/conformance/source/token_source_suite.hpp"
#include "tests/mariadb/database.hpp"

namespace fenceguard::test {
namespace {

// A database of its own, in which each handle opens connections of its own.
class OwnDatabase : public SourceSpace {
 public:
  explicit OwnDatabase(std::string parameters) : parameters_{std::move(parameters)} {}
  std::unique_ptr<TokenSource> open() override { return mariadb::open_source(database_.url(parameters_)); }

 private:
  std::string parameters_;
  mariadb::test::Database database_;
};

SourceKind kind(const std::string& name, const std::string& parameters) {
  return {name, [parameters] { return std::make_unique<OwnDatabase>(parameters); }};
}

INSTANTIATE_TEST_SUITE_P(Mariadb, TokenSourceSuite,
                         testing::Values(kind("ttl", ""), kind("named", "&lock=named")), source_kind_name);

}  // namespace
}  // namespace fenceguard::test
